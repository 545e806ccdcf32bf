package driver_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	contract "github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/sqlite/internal/driver"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest"
)

// The engine does the same with a driver that has no shortcuts.
func TestConformance_WalkPlain(t *testing.T) {
	t.Parallel()
	suite := suiteOf(2)
	suite.New = func(t *testing.T, o storetest.Options) storetest.Harness {
		h := newHarness(t, o, 2)
		h.store.Engine = engine.New(struct{ contract.DB }{h.store.driver}, h.config)
		return h
	}
	storetest.WalkInSteps(t, suite)
}

// locked is a store on a file whose write lock another connection has, until end is called.
func locked(t *testing.T, busy time.Duration) (s store, end func()) {
	t.Helper()
	h := newHarness(t, storetest.Options{}, 0)
	d := driver.New(h.store.DB(), driver.Config{Name: "locked", Prefix: "outmill_", BusyTimeout: busy})
	s = store{engine.New(d, engine.Config{Name: "locked"}), d}
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.RegisterGroup(t.Context(), outmill.Registration{}))
	tx, err := openFile(t, h.path, engine.Config{}, &atomic.Int64{}).DB().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	return s, func() { require.NoError(t, tx.Rollback()) }
}

func TestDriver_Lock(t *testing.T) {
	t.Parallel()

	t.Run("a call gives up when another connection has the write lock for too long", func(t *testing.T) {
		t.Parallel()
		s, end := locked(t, time.Millisecond)
		defer end()
		require.ErrorIs(t, s.Append(t.Context(), &outmill.Record{Topic: "orders"}), storekit.ErrBusy)
	})

	t.Run("a call that waits for the write lock ends with its context", func(t *testing.T) {
		t.Parallel()
		s, end := locked(t, time.Hour)
		defer end()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, s.Append(ctx, &outmill.Record{Topic: "orders"}), context.DeadlineExceeded)
	})

	t.Run("a call that waits for the write lock goes on when it is free", func(t *testing.T) {
		t.Parallel()
		s, end := locked(t, time.Hour)
		done := make(chan error)
		go func() { done <- s.Append(t.Context(), &outmill.Record{Topic: "orders"}) }()
		require.Eventually(t, func() bool { return s.DB().Stats().InUse > 0 }, time.Minute, time.Millisecond)
		end()
		require.NoError(t, <-done)
	})

	t.Run("an extension whose turn has come has time for its work, although it waited for nearly all its time", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		extension, end := driver.AtLeast(ctx)
		defer end()
		<-ctx.Done()
		deadline, _ := extension.Deadline()
		first, _ := ctx.Deadline()
		require.Greater(t, deadline.Sub(first), time.Second/2)
	})

	t.Run("an extension of leases passes before a claim that has waited for longer", func(t *testing.T) {
		t.Parallel()
		s := newHarness(t, storetest.Options{}, 0).store
		require.NoError(t, s.RegisterGroup(t.Context(), outmill.Registration{}))
		require.NoError(t, s.Append(t.Context(), &outmill.Record{Topic: "orders"}, &outmill.Record{Topic: "orders"}))
		req := request(outmill.OrderNone, 1)
		first, err := s.Claim(t.Context(), req)
		require.NoError(t, err)
		lease := leasesOf(first)

		passed := make(chan string, 2)
		err = s.Transact(t.Context(), func(ctx context.Context) error {
			queued := func(n int) func() bool { return func() bool { return s.driver.Waiting() == n } }
			go func() {
				_, _ = s.Claim(t.Context(), req)
				passed <- "claim"
			}()
			require.Eventually(t, queued(1), time.Minute, time.Millisecond)
			go func() {
				_, _ = s.Extend(t.Context(), time.Minute, lease)
				passed <- "extension"
			}()
			require.Eventually(t, queued(2), time.Minute, time.Millisecond)
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, "extension", <-passed)
		require.Equal(t, "claim", <-passed)
	})

	t.Run("the busy timeout of a connection is the user's again after a transaction", func(t *testing.T) {
		t.Parallel()
		s := newHarness(t, storetest.Options{}, 0).store
		s.DB().SetMaxOpenConns(1)
		_, err := s.DB().ExecContext(t.Context(), "PRAGMA busy_timeout = 1234")
		require.NoError(t, err)
		require.NoError(t, s.Append(t.Context(), &outmill.Record{Topic: "orders"}))
		var milliseconds int
		require.NoError(t, s.DB().QueryRowContext(t.Context(), "PRAGMA busy_timeout").Scan(&milliseconds))
		require.Equal(t, 1234, milliseconds)
	})
}

func TestDriver_Memory(t *testing.T) {
	t.Parallel()

	t.Run("a database in memory needs one connection only", func(t *testing.T) {
		t.Parallel()
		db, err := sql.Open("sqlite", ":memory:")
		require.NoError(t, err)
		db.SetMaxOpenConns(1)
		d := driver.New(db, driver.Config{Name: "memory", Prefix: "my_", BusyTimeout: time.Minute, Owned: true})
		s := store{engine.New(d, engine.Config{Name: "memory", EnsureSchema: true}), d}
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		require.NoError(t, s.RegisterGroup(t.Context(), outmill.Registration{}))
		require.NoError(t, s.Transact(t.Context(), func(ctx context.Context) error {
			return s.Append(ctx, &outmill.Record{Topic: "orders", Key: "k"})
		}))
		records, err := s.Claim(t.Context(), request(outmill.OrderKey, 10))
		require.NoError(t, err)
		require.Len(t, records, 1)
		require.NoError(t, s.Ack(t.Context(), "w", leasesOf(records)))
		stats, err := s.Stats(t.Context(), 10)
		require.NoError(t, err)
		require.Empty(t, stats)
	})
}

func TestDriver_Schema(t *testing.T) {
	t.Parallel()

	t.Run("tables of another program are refused", func(t *testing.T) {
		t.Parallel()
		s := openFile(t, filepath.Join(t.TempDir(), "orders.db"), engine.Config{}, &atomic.Int64{})
		_, err := s.DB().ExecContext(t.Context(), "CREATE TABLE outmill_records (id)")
		require.NoError(t, err)
		require.ErrorContains(t, s.Ensure(t.Context()), "outmill_records")
	})

	t.Run("Statements make the schema that Ensure makes", func(t *testing.T) {
		t.Parallel()
		schemaOf := func(s store) map[string]string {
			rows, err := s.DB().QueryContext(t.Context(), "SELECT name, coalesce(sql, '') FROM sqlite_master")
			require.NoError(t, err)
			defer func() { require.NoError(t, rows.Close()) }()
			all := map[string]string{}
			for rows.Next() {
				var name, text string
				require.NoError(t, rows.Scan(&name, &text))
				all[name] = text
			}
			require.NoError(t, rows.Err())
			return all
		}
		applied := openFile(t, filepath.Join(t.TempDir(), "orders.db"), engine.Config{}, &atomic.Int64{})
		for _, statement := range applied.Statements() {
			_, err := applied.DB().ExecContext(t.Context(), statement)
			require.NoError(t, err, statement)
		}
		require.Equal(t, schemaOf(newHarness(t, storetest.Options{}, 0).store), schemaOf(applied))
		require.NoError(t, applied.Ensure(t.Context()))
	})
}

func TestDriver_Contract(t *testing.T) {
	t.Parallel()

	t.Run("a database with tables of an earlier kind is refused, whatever the first call is", func(t *testing.T) {
		t.Parallel()
		s := openFile(t, filepath.Join(t.TempDir(), "orders.db"), engine.Config{}, &atomic.Int64{})
		_, err := s.DB().ExecContext(t.Context(),
			"CREATE TABLE outmill_meta (only_row INTEGER PRIMARY KEY, version INTEGER, generation INTEGER); "+
				"INSERT INTO outmill_meta VALUES (1, 1, 0); CREATE TABLE outmill_records (seq INTEGER PRIMARY KEY)")
		require.NoError(t, err)
		tx, err := s.DB().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		within := s.Append(s.WithTx(t.Context(), tx), &outmill.Record{Topic: "orders"})
		require.NoError(t, tx.Rollback())
		_, reads := s.Stats(t.Context(), 1)
		for _, err := range []error{within, reads, s.Ensure(t.Context()), s.Append(t.Context(), &outmill.Record{Topic: "orders"})} {
			require.ErrorIs(t, err, outmill.ErrSchemaForeign)
			require.ErrorContains(t, err, "TablePrefix")
		}
	})

	t.Run("a transaction without a function is refused", func(t *testing.T) {
		t.Parallel()
		s := newHarness(t, storetest.Options{}, 0).store
		require.ErrorIs(t, s.driver.InTx(t.Context(), nil), outmill.ErrInvalidConfig)
	})

	t.Run("a commit that SQLite refuses is not in doubt, and one that the disk fails is", func(t *testing.T) {
		t.Parallel()
		s := newHarness(t, storetest.Options{}, 0).store
		_, err := s.DB().ExecContext(t.Context(), "CREATE TABLE parents (id INTEGER PRIMARY KEY); "+
			"CREATE TABLE children (parent INTEGER REFERENCES parents (id) DEFERRABLE INITIALLY DEFERRED)")
		require.NoError(t, err)
		err = s.driver.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO children VALUES (7)")
			return err
		})
		require.ErrorContains(t, err, "FOREIGN KEY")
		require.NotErrorIs(t, err, storekit.ErrCommitInDoubt)
		require.False(t, s.MayBeCommitted(t.Context(), err))
		require.False(t, s.MayBeCommitted(t.Context(), sql.ErrTxDone))
		require.True(t, s.MayBeCommitted(t.Context(), context.DeadlineExceeded))
	})
}

func request(order outmill.Order, limit int) outmill.ClaimRequest {
	return outmill.ClaimRequest{
		Owner: outmill.NewOwnerToken(), Topics: outmill.Topics{Include: []string{"orders"}}, Limit: limit, Lease: time.Minute, Order: order,
	}
}

func leasesOf(records []*outmill.Record) []outmill.Lease {
	leases := make([]outmill.Lease, len(records))
	for i, r := range records {
		leases[i] = r.Lease()
	}
	return leases
}
