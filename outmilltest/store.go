package outmilltest

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/outmill/outmill/sqlite"
)

// retain is how long NewStore's store keeps processed records: longer than any test.
const retain = 7 * 24 * time.Hour

// NewStore returns an empty store for the test, with its schema, and closes it when the
// test ends. It retains processed records, so that the test still finds a message after it
// was handled; all other settings are the defaults.
//
// The database is a file in t.TempDir, opened as a program opens it. A database in memory
// would behave differently. With a single connection, every call outside an open
// transaction waits for its end, also the calls of the test itself. With several
// connections, readers and writers block each other, which they do not in the WAL mode of a
// file.
func NewStore(t testing.TB) *sqlite.Store {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	store, err := sqlite.Open(ctx, filepath.Join(t.TempDir(), "outmill.db"), sqlite.Config{Retain: retain}, nil)
	if err != nil {
		t.Fatalf("outmilltest: %v", err)
		return nil
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("outmilltest: %v", err)
		}
	})
	if err := store.Ensure(ctx); err != nil {
		t.Fatalf("outmilltest: %v", err)
	}
	return store
}
