package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/mysqltest"
	"github.com/outmill/outmill/mysql"
)

// orders makes a table of the user's own in the database of the outbox, with two rows.
func orders(t *testing.T, db *sql.DB) {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	for _, statement := range []string{
		`CREATE TABLE orders (id INT PRIMARY KEY, n INT)`, `INSERT INTO orders VALUES (1, 0), (2, 0)`, `COMMIT`,
	} {
		run(t, tx, statement)
	}
	require.NoError(t, tx.Rollback())
}

func records(t *testing.T, store *mysql.Store) (n int) {
	t.Helper()
	require.NoError(t, store.DB().QueryRowContext(t.Context(), `SELECT COUNT(*) FROM outmill_records`).Scan(&n))
	return n
}

func begin(t *testing.T, store *mysql.Store, level sql.IsolationLevel) (context.Context, *sql.Tx) {
	t.Helper()
	tx, err := store.DB().BeginTx(context.WithoutCancel(t.Context()), &sql.TxOptions{Isolation: level})
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return store.WithTx(t.Context(), tx), tx
}

func run(t *testing.T, tx *sql.Tx, statement string) {
	t.Helper()
	_, err := tx.ExecContext(t.Context(), statement)
	require.NoError(t, err, statement)
}

func isNumber(err error, number uint16) bool {
	var e *driver.MySQLError
	return errors.As(err, &e) && e.Number == number
}

// endings are what ends a transaction while the program goes on in it.
var endings = map[string]func(t *testing.T, store *mysql.Store, tx *sql.Tx){
	"a deadlock": func(t *testing.T, store *mysql.Store, tx *sql.Tx) {
		_, other := begin(t, store, sql.LevelReadCommitted)
		// The one that has written less is the victim.
		run(t, tx, `UPDATE orders SET n = 1 WHERE id = 1`)
		run(t, other, `UPDATE orders SET n = 2 WHERE id = 2`)
		run(t, other, `INSERT INTO orders VALUES (3, 0), (4, 0), (5, 0), (6, 0), (7, 0), (8, 0), (9, 0)`)
		ended := make(chan error, 1)
		go func() {
			_, err := other.ExecContext(context.WithoutCancel(t.Context()), `UPDATE orders SET n = 2 WHERE id = 1`)
			ended <- err
		}()
		_, err := tx.ExecContext(t.Context(), `UPDATE orders SET n = 1 WHERE id = 2`)
		require.True(t, isNumber(err, 1213), "%v", err)
		require.NoError(t, <-ended)
		require.NoError(t, other.Rollback())
	},
	"a statement of DDL":        func(t *testing.T, _ *mysql.Store, tx *sql.Tx) { run(t, tx, `CREATE TABLE mine (i INT)`) },
	"a COMMIT as a statement":   func(t *testing.T, _ *mysql.Store, tx *sql.Tx) { run(t, tx, `COMMIT`) },
	"a ROLLBACK as a statement": func(t *testing.T, _ *mysql.Store, tx *sql.Tx) { run(t, tx, `ROLLBACK`) },
}

// requireGone checks the calls in a transaction that has ended.
func requireGone(t *testing.T, store *mysql.Store, end func(t *testing.T, store *mysql.Store, tx *sql.Tx)) {
	t.Helper()
	orders(t, store.DB())
	ctx, tx := begin(t, store, sql.LevelDefault)
	end(t, store, tx)
	for _, r := range []*outmill.Record{rec("a", ""), rec("b", "key"), {Topic: "orders", DedupKey: "once"}} {
		require.ErrorIs(t, store.Append(ctx, r), outmill.ErrInvalidTx)
	}
	_ = tx.Commit()
	require.Zero(t, records(t, store))
	require.NoError(t, store.Append(t.Context(), &outmill.Record{Topic: "orders", DedupKey: "once"}))
	require.Equal(t, 1, records(t, store), "the dedup key is free")
}

func TestStore_Ended(t *testing.T) {
	t.Parallel()
	for name, end := range endings {
		t.Run("after "+name+" each call in the transaction is ErrInvalidTx, and nothing is written", func(t *testing.T) {
			t.Parallel()
			requireGone(t, newStore(t, ""), end)
		})
		t.Run("the same without autocommit, after "+name, func(t *testing.T) {
			t.Parallel()
			if store := newStore(t, "autocommit=0"); mysqltest.IsMariaDB(t, store.DB()) {
				requireGone(t, store, end)
			}
		})
	}

	t.Run("Transact whose function hides the end of the transaction is ErrInvalidTx", func(t *testing.T) {
		t.Parallel()
		store := newStore(t, "")
		err := store.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			run(t, tx, `ROLLBACK`)
			return nil
		})
		require.ErrorIs(t, err, outmill.ErrInvalidTx)
	})
}

func TestStore_Isolation(t *testing.T) {
	t.Parallel()

	t.Run("an Append under REPEATABLE READ is for the groups of the moment at which the transaction first read", func(t *testing.T) {
		t.Parallel()
		store := newStore(t, "")
		ctx, tx := begin(t, store, sql.LevelRepeatableRead)
		require.NoError(t, tx.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM outmill_records`).Scan(new(int)))
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: "late"}))
		require.NoError(t, store.Append(ctx, rec("a", "")))
		require.NoError(t, tx.Commit())
		require.Equal(t, []string{"a"}, claimed(t, store, outmill.NewOwnerToken(), outmill.OrderNone))
		found, err := store.Claim(t.Context(), outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Group: "late", Limit: 10, Lease: 1e9})
		require.NoError(t, err)
		require.Empty(t, found)
	})

	t.Run("an Append under READ COMMITTED is for the groups of its own moment", func(t *testing.T) {
		t.Parallel()
		store := newStore(t, "")
		ctx, tx := begin(t, store, sql.LevelReadCommitted)
		require.NoError(t, tx.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM outmill_records`).Scan(new(int)))
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: "late"}))
		require.NoError(t, store.Append(ctx, rec("a", "")))
		require.NoError(t, tx.Commit())
		found, err := store.Claim(t.Context(), outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Group: "late", Limit: 10, Lease: 1e9})
		require.NoError(t, err)
		require.Len(t, found, 1)
	})

	t.Run("a message of an old snapshot without a group goes to the group that has registered since", func(t *testing.T) {
		t.Parallel()
		store, err := mysql.New(newStore(t, "").DB(), mysql.Config{TablePrefix: "alone_"}, nil)
		require.NoError(t, err)
		require.NoError(t, store.Ensure(t.Context()))
		ctx, tx := begin(t, store, sql.LevelRepeatableRead)
		require.NoError(t, tx.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM alone_records`).Scan(new(int)))
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: group}))
		require.NoError(t, store.Append(ctx, rec("a", "")))
		require.NoError(t, tx.Commit())
		require.Equal(t, []string{"a"}, claimed(t, store, outmill.NewOwnerToken(), outmill.OrderNone))
	})

	for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable} {
		t.Run("a dedup key that was committed behind the snapshot is a duplicate at "+level.String(), func(t *testing.T) {
			t.Parallel()
			store := newStore(t, "")
			ctx, tx := begin(t, store, level)
			require.NoError(t, tx.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM outmill_notes`).Scan(new(int)))
			require.NoError(t, store.Append(t.Context(), &outmill.Record{Topic: "orders", DedupKey: "once"}))
			again := &outmill.Record{Topic: "orders", DedupKey: "once"}
			require.NoError(t, store.Append(ctx, again))
			require.NoError(t, tx.Commit())
			require.True(t, again.Duplicate)
			require.Equal(t, 1, records(t, store))
		})
	}

	t.Run("an open transaction that has appended stalls no append, claim, ack or registration at any level", func(t *testing.T) {
		t.Parallel()
		for _, level := range []sql.IsolationLevel{sql.LevelReadCommitted, sql.LevelRepeatableRead} {
			store := newStore(t, "innodb_lock_wait_timeout=1")
			ctx, tx := begin(t, store, level)
			require.NoError(t, store.Append(ctx, rec("open", "key")))
			require.NoError(t, store.Append(t.Context(), rec("a", "key"), rec("b", "")))
			require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: "late"}))
			owner := outmill.NewOwnerToken()
			found, err := store.Claim(t.Context(), outmill.ClaimRequest{Owner: owner, Group: group, Limit: 10, Lease: 60e9, Order: outmill.OrderKey})
			require.NoError(t, err)
			require.Len(t, found, 2)
			require.NoError(t, store.Ack(t.Context(), "", []outmill.Lease{found[0].Lease(), found[1].Lease()}))
			require.Equal(t, 0, records(t, store))
			require.NoError(t, tx.Commit())
			require.Equal(t, []string{"open"}, claimed(t, store, owner, outmill.OrderKey))
		}
	})
}

// A call in InTx that loses a deadlock has no savepoint to go back to.
func TestStore_InTx(t *testing.T) {
	t.Parallel()
	t.Run("a function whose call loses a deadlock runs again", func(t *testing.T) {
		t.Parallel()
		store := newStore(t, "")
		orders(t, store.DB())
		once := func() *outmill.Record { return &outmill.Record{Topic: "orders", DedupKey: "once"} }
		// The server ends the transaction that has written less.
		ctx, heavy := begin(t, store, sql.LevelReadCommitted)
		for i := range 50 {
			_, err := heavy.ExecContext(t.Context(), `INSERT INTO orders VALUES (?, 0)`, 100+i)
			require.NoError(t, err)
		}
		require.NoError(t, store.Append(ctx, once()))
		has, done := make(chan struct{}), make(chan error, 1)
		go func() {
			<-has
			_, err := heavy.ExecContext(context.WithoutCancel(t.Context()), `UPDATE orders SET n = n + 1 WHERE id = 1`)
			done <- errors.Join(err, heavy.Commit())
		}()
		runs, late := 0, once()
		require.NoError(t, store.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, `UPDATE orders SET n = n + 1 WHERE id = 1`); err != nil {
				return err
			}
			if runs++; runs == 1 {
				close(has)
			}
			return store.Append(ctx, late)
		}))
		require.NoError(t, <-done)
		require.Equal(t, 2, runs)
		require.True(t, late.Duplicate)
	})
}
