package publisher_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/outmilltest"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
)

const (
	orders = "orders"
	// patience limits the wait for an event that should happen at once.
	patience = 5 * time.Minute
	tick     = 5 * time.Millisecond
)

func newPublisher(t testing.TB, store outmill.Writer, changes ...func(*publisher.Config)) *publisher.Publisher {
	t.Helper()
	var cfg publisher.Config
	for _, change := range changes {
		change(&cfg)
	}
	pub, err := publisher.New(store, cfg, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pub.Close()) })
	return pub
}

// newNamed is for tests that need several stores, or settings of the store.
func newNamed(t testing.TB, cfg sqlite.Config) *sqlite.Store {
	t.Helper()
	return newLogged(t, cfg, nil)
}

func newLogged(t testing.TB, cfg sqlite.Config, logger watermill.LoggerAdapter) *sqlite.Store {
	t.Helper()
	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "outmill.db"), cfg, logger)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Ensure(t.Context()))
	return store
}

// begin opens a transaction as a user of database/sql does.
func begin(t testing.TB, store *sqlite.Store) *sql.Tx {
	t.Helper()
	tx, err := store.DB().BeginTx(context.WithoutCancel(t.Context()), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// beginReading opens a transaction while another one writes: SQLite has one
// writer at a time.
func beginReading(t testing.TB, store *sqlite.Store) *sql.Tx {
	t.Helper()
	tx, err := store.DB().BeginTx(context.WithoutCancel(t.Context()), &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// msg makes a message; tests name messages by their UUIDs.
func msg(name string, changes ...func(*message.Message)) *message.Message {
	m := message.NewMessage(name, message.Payload("payload of "+name))
	for _, change := range changes {
		change(m)
	}
	return m
}

func in(ctx context.Context) func(*message.Message) {
	return func(m *message.Message) { m.SetContext(ctx) }
}

// requirePublished wants exactly these messages, in this order.
func requirePublished(t testing.TB, store outmill.Inspector, topic string, names ...string) []*outmill.Record {
	t.Helper()
	want := make([]outmilltest.Matcher, len(names))
	for i, name := range names {
		want[i] = outmilltest.MessageID(name)
	}
	return outmilltest.RequireManyPublished(t, store, topic, want...)
}

// execute runs a statement of the user.
func execute(t testing.TB, h interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}, query string, args ...any) {
	t.Helper()
	_, err := h.ExecContext(t.Context(), query, args...)
	require.NoError(t, err)
}

func count(t testing.TB, store *sqlite.Store, query string) int {
	t.Helper()
	var n int
	require.NoError(t, store.DB().QueryRowContext(t.Context(), query).Scan(&n))
	return n
}

func receive[T any](t testing.TB, from <-chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(patience):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}
