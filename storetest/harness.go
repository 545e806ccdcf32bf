package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/outmill/outmill"
)

// Engine configures the tests of one engine's stores, for Run, joinstest.Run and txtest.Run.
type Engine struct {
	// New returns a Harness with an empty store on a database, schema or table prefix of
	// its own, with its schema ensured unless options.NoSchema is set. It closes the store,
	// and removes its database, schema or tables, by t.Cleanup. It is called by many tests
	// in parallel, and fails the test if it cannot make the store.
	New func(t *testing.T, options Options) Harness

	// Unsupported has the sections and sentences that the engine cannot keep: "section", or
	// "section: sentence" as the flag -storetest.list prints them, each with the reason, which
	// the skipped test prints. A name that the suite does not have fails the run.
	Unsupported map[string]string
}

// Options are the settings of a store that the suite varies.
type Options struct {
	// Retain is how long the store keeps processed records; 0 deletes them on
	// ack.
	Retain time.Duration
	// DedupWindow is how long the store remembers dedup keys, always more than 0.
	DedupWindow time.Duration
	// NoSchema asks for a store on an empty database, for which Ensure was not called.
	NoSchema bool
}

// Harness has a store under test, and methods for its database. If a method fails, it fails
// the test that Engine.New got. A Harness may also implement Limited, Applier, Ager, Viewer,
// Transactor, Repeater, Doubtful, TxEnder, Guarded, Wired, Watcher, Fair or Breaker.
type Harness interface {
	// Store returns the store, the same with each call. Tests may close it.
	Store() outmill.Store

	// Reopen returns another store on the same database and with the same options, as another
	// process would have: it shares no memory with the first one. Reopen does not ensure the
	// schema, and closes the store by t.Cleanup.
	Reopen() outmill.Store

	// Elapse makes d pass for the database of a store that Store or Reopen returned. It moves
	// the clock forward by d, or, because most engines cannot do that, moves every time in the
	// tables back by d. The suite makes no other call on the database at the same time.
	Elapse(store outmill.Store, d time.Duration)

	// Begin begins a transaction of a store that Store or Reopen returned, as a user of the
	// store would. It returns a context that carries the transaction (the store's WithTx), and
	// functions that end it. If the test does not end it, t.Cleanup must roll it back. Only
	// sentences about open transactions have two of them at the same time, or call other
	// methods than Get, List and Stats of the store while one is open.
	Begin(store outmill.Store) (ctx context.Context, commit, rollback func() error)
}

// Breaker is a Harness that can make records undecodable, as changes by hand and faults of disks do. Without it, the
// sentences about them are skipped.
type Breaker interface {
	// Columns are those that Break knows: columns with times, numbers and texts, the payload and the metadata. An
	// error of the store about such a column has its name.
	Columns() []string
	// Break gives a column of a record a value that no store writes there, such as one of another type.
	Break(store outmill.Store, id outmill.WorkItemID, column string)
}

// Limited is a Harness of a store with a limit for payloads. Without it, the sentence about
// the limit is skipped.
type Limited interface {
	// MaxPayload is the size in bytes of the largest payload that the store accepts.
	MaxPayload() int
}

// Applier is a Harness of a store that has Statements. Without it, the sentences about the
// resulting schema are skipped.
type Applier interface {
	// Apply runs Statements of the store on its empty database, as a migration tool would.
	Apply(statements []string)
}

// Ager is a Harness that can mark a schema as newer. Without it, the sentence about
// ErrSchemaNewer is skipped.
type Ager interface {
	// MakeNewer marks the schema as made by a newer version of Outmill.
	MakeNewer()
}

// Viewer is a Harness of a store that has a view for people. Without it, the sentences
// about the view are skipped.
type Viewer interface {
	// Readable returns the rows of the view, in any order.
	Readable() []Shown
}

// Transactor is a Harness of a store whose transactions must be repeated, or begun in another
// way than by Begin, if other transactions write at the same time. Without it, the section
// "stress" uses Begin.
type Transactor interface {
	// InTx runs do in a transaction of the store, and commits if do returns nil. The context
	// of do carries the transaction. InTx may run do again. If do fails, InTx returns the
	// error of do, possibly wrapped.
	InTx(ctx context.Context, store outmill.Store, do func(ctx context.Context) error) error
}

// Repeater is a Harness of a roles.Transactor. Without it, the sentences of txtest about
// repeats are skipped.
type Repeater interface {
	// Passing returns a temporary error of the driver, such as a deadlock, after which the
	// store repeats a transaction. It may cause a real one in the transaction that ctx carries.
	Passing(ctx context.Context, store outmill.Store) error
}

// Doubtful is a Harness of a roles.Transactor that can lose the answer to a commit.
// Without it, the sentence of txtest about lost answers is skipped.
type Doubtful interface {
	// Doubtful returns a store on an empty database. Its next commit takes effect, but the
	// answer does not arrive.
	Doubtful() outmill.Store
}

// Guarded is a Harness of a roles.Sagas. Without it, the sentences of txtest about unique
// indexes of the user are skipped.
type Guarded interface {
	// GuardSagas makes a unique index, as a user of the store would, on this field of the states
	// of the sagas of the type, until the test ends.
	GuardSagas(store outmill.Store, kind, field string)
}

// Wired is a Harness that can record the values that a store sends to its database, for
// example by a hook of the driver. Without it, the sentences about them are skipped.
type Wired interface {
	// Tap returns a context that records the values which calls with it send, and a function
	// that returns the values of each round trip so far.
	Tap(ctx context.Context) (tapped context.Context, sent func() [][]any)
}

// Watcher is a Harness of a store with internal state, such as segments or held keys, which
// the section "stress" disturbs and checks.
type Watcher interface {
	// Watch changes that state while others call the store, and reports each fault, until ctx
	// ends.
	Watch(ctx context.Context, fault func(error))
	// AtRest returns the internal state that the store still keeps after all records are
	// settled, and nil if it keeps none. The suite calls it until it returns nil.
	AtRest() error
}

// Shown is one row of a store's view for people.
type Shown struct {
	ID string
	// Group is nil for a record that waits for a group.
	Group  *string
	Topic  string
	Status string
}
