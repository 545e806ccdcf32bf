package outmilltest

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/outmill/outmill/sqlite"
)

// retain is how long NewStore's store keeps what was acked: longer than any
// test.
const retain = 7 * 24 * time.Hour

// NewStore returns an empty store of the test's own, with its schema, and
// closes it when the test ends. It keeps processed records, so that a message
// that was handled already is still found; all else is the default.
//
// The database is a file in t.TempDir, opened as a program opens it. One in
// memory would not behave alike: with a single connection, everything outside
// an open transaction waits for its end, the test that looks at the store too;
// with several, readers and writers lock each other out, as they do not in a
// file's WAL mode.
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
