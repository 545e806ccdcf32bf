package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/outmill/outmill"
)

// Engine says how the stores of one engine are tested, by Run and by joinstest.Run.
type Engine struct {
	// New returns a Harness with an empty store on a database, schema or table prefix of
	// its own, with its schema ensured unless options say otherwise. It closes the store,
	// and removes what it made, by t.Cleanup. It is called from many parallel tests, and
	// fails the test itself where it cannot do its work.
	New func(t *testing.T, options Options) Harness

	// Unsupported names what the engine cannot do: "section", or "section: sentence" as
	// the flag -storetest.list prints them, each with the reason, which is printed. A name
	// that the suite does not have fails the run.
	Unsupported map[string]string
}

// Options are the settings of a store that the suite varies.
type Options struct {
	// Retain is how long the store keeps processed records; 0 deletes them on
	// ack.
	Retain time.Duration
	// DedupWindow is how long the store remembers dedup keys, always more than 0.
	DedupWindow time.Duration
	// NoSchema asks for a store on an empty database: Ensure has not been called.
	NoSchema bool
}

// Harness is a store under test, and what one test does with its database. The methods
// fail the test of Engine.New themselves where they cannot do their work. A Harness may
// also be a Limited, Applier, Ager, Viewer, Transactor, Repeater, Doubtful, Wired
// or Watcher.
type Harness interface {
	// Store is the store, the same with each call. Tests may close it.
	Store() outmill.Store

	// Reopen returns a second store on the same database and with the same options, as
	// another process would have it: nothing in memory is shared. It does not ensure the
	// schema, and is closed by t.Cleanup.
	Reopen() outmill.Store

	// Elapse makes d pass for the database of a store that Store or Reopen returned: it
	// moves the clock on, or, because most engines cannot, every time in the tables back
	// by d. No other call on the database is in progress.
	Elapse(store outmill.Store, d time.Duration)

	// Begin begins a transaction of a store that Store or Reopen returned, as a user of the
	// store would, and returns a context that carries it (the store's WithTx) and what ends
	// it. A transaction that the test did not end is rolled back by t.Cleanup. The suite has
	// no two transactions open at the same time, and calls only Get, List and Stats of the
	// store while one is, except where a sentence is about just that.
	Begin(store outmill.Store) (ctx context.Context, commit, rollback func() error)
}

// Limited is a Harness of a store whose payloads have a limit. Without it, the sentence
// about the limit is skipped.
type Limited interface {
	// MaxPayload is the size in bytes of the largest payload that the store accepts.
	MaxPayload() int
}

// Applier is a Harness of a store that has Statements. Without it, the sentences about
// what they make are skipped.
type Applier interface {
	// Apply runs Statements of the store on its empty database, as a migration tool would.
	Apply(statements []string)
}

// Ager is a Harness that makes a schema look newer. Without it, the sentence about
// ErrSchemaNewer is skipped.
type Ager interface {
	// MakeNewer marks the schema as made by a newer version of Outmill.
	MakeNewer()
}

// Viewer is a Harness of a store that has a view for people. Without it, the sentences
// about the view are skipped.
type Viewer interface {
	// Readable returns what the view shows, in any order.
	Readable() []Shown
}

// Transactor is a Harness of a store whose transactions must be repeated, or begun
// otherwise than by Begin, where others write at the same time. Without it, the section
// "stress" uses Begin.
type Transactor interface {
	// InTx runs do in a transaction of the store, and commits if do returns nil. The context
	// that do gets carries the transaction. It may run do again. It returns the error of do
	// in such a way that errors.Is finds it.
	InTx(ctx context.Context, store outmill.Store, do func(ctx context.Context) error) error
}

// Repeater is a Harness of a storekit.Transactor. Without it, the sentences of txtest about
// repeats are skipped.
type Repeater interface {
	// Passing returns an error of the driver, in the transaction that ctx carries, after
	// which the store runs a transaction again, such as a deadlock. It may make one.
	Passing(ctx context.Context, store outmill.Store) error
}

// Doubtful is a Harness of a storekit.Transactor whose answers to commits can be made to get
// lost. Without it, the sentence of txtest about those is skipped.
type Doubtful interface {
	// Doubtful returns a store on an empty database whose next commit takes effect, but the
	// answer to it does not arrive.
	Doubtful() outmill.Store
}

// Wired is a Harness that sees what a store sends to its database, such as by a hook of the
// driver. Without it, the sentences about that are skipped.
type Wired interface {
	// Tap returns a context that notes what calls with it send, and a function that returns
	// the values of each round trip so far.
	Tap(ctx context.Context) (tapped context.Context, sent func() [][]any)
}

// Watcher is a Harness of a store with state of its own, such as segments or keys that
// are held, that the section "stress" is to disturb and to check.
type Watcher interface {
	// Watch moves that state about while others call the store, and reports each fault,
	// until ctx ends.
	Watch(ctx context.Context, fault func(error))
	// AtRest returns what the store keeps of records that are all settled, and nil once it
	// keeps nothing. It is called until then.
	AtRest() error
}

// Shown is a row of a store's view for people.
type Shown struct {
	ID string
	// Group is nil for a record that waits for a group.
	Group  *string
	Topic  string
	Status string
}
