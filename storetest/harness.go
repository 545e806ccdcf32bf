package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/outmill/outmill"
)

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

// Harness is what the suite needs to know of a store. The functions fail the
// test themselves where they cannot do their work, and are called from many
// parallel tests.
type Harness struct {
	// New returns an empty store on a database, schema or table prefix of its
	// own, with its schema ensured unless options say otherwise. It closes the
	// store, and removes what it made, by t.Cleanup; tests may close the store
	// before.
	New func(t *testing.T, options Options) outmill.Store

	// Reopen returns a second store on the same database and with the same
	// options, as another process would have it: nothing in memory is shared. It
	// does not ensure the schema, and is closed as New says.
	Reopen func(t *testing.T, store outmill.Store) outmill.Store

	// Elapse makes d pass for the database of the store: it moves the clock on, or,
	// because most engines cannot, every time in the store's tables back by d. The
	// store is one that New or Reopen returned, and no other call on it is in
	// progress.
	Elapse func(t *testing.T, store outmill.Store, d time.Duration)

	// Begin begins a transaction as a user of the store would, and returns a
	// context that carries it (the store's WithTx) and what ends it. A
	// transaction that the test did not end is rolled back by t.Cleanup. The
	// suite has no two transactions of one store open at the same time, and
	// calls only Get, List and Stats of the store while one is, save where a
	// sentence is about just that.
	Begin func(t *testing.T, store outmill.Store) (ctx context.Context, commit, rollback func() error)

	// MaxPayload is the size in bytes of the largest payload that the store
	// takes; 0 skips the sentence about the limit.
	MaxPayload int

	// Apply runs the store's Statements on its empty database, as a migration
	// tool would; nil skips the sentence about it.
	Apply func(t *testing.T, store outmill.Store, statements []string)

	// MakeNewer marks the schema as made by a newer version of Outmill; nil
	// skips the sentence about it.
	MakeNewer func(t *testing.T, store outmill.Store)

	// Readable returns what the store's view for people shows, in any order; nil
	// skips the sentence about it, for a store that has none.
	Readable func(t *testing.T, store outmill.Store) []Shown

	// Unsupported names what the engine cannot do: "section", or
	// "section: sentence" as they stand in the names of the tests, each with the
	// reason, which is printed. A name that the suite does not have fails the
	// run.
	Unsupported map[string]string
}

// Shown is a row of a store's view for people.
type Shown struct {
	ID string
	// Group is nil for a record that waits for a group.
	Group  *string
	Topic  string
	Status string
}
