package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite"
)

// orders makes a table of the user's own in the database of the outbox.
func orders(t *testing.T, db *sql.DB) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), `CREATE TABLE orders (id TEXT)`)
	require.NoError(t, err)
}

func counts(t *testing.T, store file) (orders, records int) {
	t.Helper()
	return number(t, store.DB(), `SELECT count(*) FROM orders`), number(t, store.DB(), `SELECT count(*) FROM outmill_records`)
}

// order writes an order and its record in one transaction.
func order(store file, id string) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO orders VALUES (?)`, id); err != nil {
			return err
		}
		return store.Append(ctx, rec(id, ""))
	}
}

func requireCounts(t *testing.T, store file, wantOrders, wantRecords int) {
	t.Helper()
	gotOrders, gotRecords := counts(t, store)
	require.Equal(t, []int{wantOrders, wantRecords}, []int{gotOrders, gotRecords}, "orders and records")
}

func TestStore_Tx(t *testing.T) {
	t.Parallel()

	t.Run("InTx", func(t *testing.T) {
		t.Parallel()
		t.Run("commits the writes and appends of fn", func(t *testing.T) {
			t.Parallel()
			store := newStore(t)
			orders(t, store.DB())
			require.NoError(t, store.InTx(t.Context(), order(store, "1")))
			requireCounts(t, store, 1, 1)
		})
		t.Run("rolls back and returns the error of fn as it is", func(t *testing.T) {
			t.Parallel()
			store := newStore(t)
			orders(t, store.DB())
			boom := errors.New("boom")
			err := store.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
				return errors.Join(order(store, "1")(ctx, tx), boom)
			})
			require.ErrorIs(t, err, boom)
			require.Equal(t, "boom", err.Error())
			requireCounts(t, store, 0, 0)
		})
		t.Run("rolls back when fn panics, and the panic goes on", func(t *testing.T) {
			t.Parallel()
			store := newStore(t)
			orders(t, store.DB())
			require.PanicsWithValue(t, "boom", func() {
				_ = store.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
					require.NoError(t, order(store, "1")(ctx, tx))
					panic("boom")
				})
			})
			requireCounts(t, store, 0, 0)
			require.NoError(t, store.InTx(t.Context(), order(store, "2")), "the store goes on")
		})
		t.Run("rolls back when its context has ended", func(t *testing.T) {
			t.Parallel()
			store := newStore(t)
			orders(t, store.DB())
			ctx, cancel := context.WithCancel(t.Context())
			err := store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
				defer cancel()
				return order(store, "1")(ctx, tx)
			})
			require.ErrorIs(t, err, context.Canceled)
			requireCounts(t, store, 0, 0)
		})
		t.Run("refuses a nil function", func(t *testing.T) {
			t.Parallel()
			require.ErrorIs(t, newStore(t).InTx(t.Context(), nil), outmill.ErrInvalidConfig)
		})
		t.Run("ends in an error when fn waits for itself", func(t *testing.T) {
			t.Parallel()
			store := newStore(t, sqlite.Config{BusyTimeout: 50 * time.Millisecond})
			err := store.InTx(t.Context(), func(context.Context, *sql.Tx) error {
				return store.Append(t.Context(), rec("outside of the transaction", ""))
			})
			require.ErrorContains(t, err, "another write transaction of this store has not ended")
		})
		t.Run("after Close is refused", func(t *testing.T) {
			t.Parallel()
			store := newStore(t)
			require.NoError(t, store.Close())
			require.ErrorIs(t, store.InTx(t.Context(), order(store, "1")), outmill.ErrClosed)
		})
	})

	t.Run("WithTx", func(t *testing.T) {
		t.Parallel()
		t.Run("takes any handle with the methods of a transaction", func(t *testing.T) {
			t.Parallel()
			store := newStore(t)
			tx, err := store.DB().BeginTx(t.Context(), nil)
			require.NoError(t, err)
			ctx := store.WithTx(t.Context(), &wrapped{tx})
			require.NoError(t, store.Append(ctx, rec("m1", "")))
			require.NoError(t, tx.Rollback())
			require.Zero(t, number(t, store.DB(), `SELECT count(*) FROM outmill_records`))
		})
		t.Run("takes a connection on which the caller said BEGIN", func(t *testing.T) {
			t.Parallel()
			store := newStore(t)
			conn, err := store.DB().Conn(t.Context())
			require.NoError(t, err)
			defer func() { require.NoError(t, conn.Close()) }()
			_, err = conn.ExecContext(t.Context(), "BEGIN IMMEDIATE")
			require.NoError(t, err)
			require.NoError(t, store.Append(store.WithTx(t.Context(), conn), rec("m1", "")))
			_, err = conn.ExecContext(t.Context(), "ROLLBACK")
			require.NoError(t, err)
			require.Zero(t, number(t, store.DB(), `SELECT count(*) FROM outmill_records`))
		})
		t.Run("takes a transaction of another handle on the same file", func(t *testing.T) {
			t.Parallel()
			store := newStore(t)
			db, err := sql.Open("sqlite", store.path)
			require.NoError(t, err)
			defer func() { require.NoError(t, db.Close()) }()
			appendAll(t, store, rec("m1", ""))
			tx, err := db.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			require.NoError(t, store.Append(store.WithTx(t.Context(), tx), rec("m2", "")))
			require.NoError(t, tx.Commit())
			require.Equal(t, 2, number(t, store.DB(), `SELECT count(*) FROM outmill_records`))
		})
		for name, handle := range map[string]func(*sql.DB) sqlite.Handle{
			"nil":                              func(*sql.DB) sqlite.Handle { return nil },
			"a typed nil":                      func(*sql.DB) sqlite.Handle { return (*sql.Tx)(nil) },
			"a pool":                           func(db *sql.DB) sqlite.Handle { return db },
			"a handle that cannot be compared": func(*sql.DB) sqlite.Handle { return uncomparable{} },
		} {
			t.Run("refuses "+name, func(t *testing.T) {
				t.Parallel()
				store := newStore(t)
				ctx := store.WithTx(t.Context(), handle(store.DB()))
				require.ErrorIs(t, store.Append(ctx, rec("m1", "")), outmill.ErrInvalidTx)
				_, err := store.TxOf(ctx)
				require.ErrorIs(t, err, outmill.ErrInvalidTx)
				require.Zero(t, number(t, store.DB(), `SELECT count(*) FROM outmill_records`))
			})
		}
		t.Run("a transaction that is over is refused", func(t *testing.T) {
			t.Parallel()
			store := newStore(t)
			tx, err := store.DB().BeginTx(t.Context(), nil)
			require.NoError(t, err)
			require.NoError(t, tx.Commit())
			err = store.Append(store.WithTx(t.Context(), tx), rec("m1", ""))
			require.ErrorIs(t, err, outmill.ErrInvalidTx)
			require.ErrorIs(t, err, sql.ErrTxDone)
		})
	})

	t.Run("an append that fails leaves the rest of the caller's transaction", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		orders(t, store.DB())
		taken := rec("taken", "")
		appendAll(t, store, taken)
		require.NoError(t, store.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			require.NoError(t, order(store, "1")(ctx, tx))
			again := rec("again", "")
			again.ID = taken.ID
			require.ErrorContains(t, store.Append(ctx, rec("beside", ""), again), "UNIQUE")
			return nil
		}))
		requireCounts(t, store, 1, 2)
	})

	t.Run("a context that ends during an append does not roll the caller's transaction back", func(t *testing.T) {
		t.Parallel()
		const each = 1000
		store := newStore(t)
		orders(t, store.DB())
		var placed, appended int
		require.NoError(t, store.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			// The contexts end at different moments of the append, the last one after it.
			for patience := time.Millisecond; appended == 0; patience += time.Millisecond {
				if _, err := tx.ExecContext(ctx, `INSERT INTO orders VALUES ('1')`); err != nil {
					return err
				}
				placed++
				records := make([]*outmill.Record, each)
				for i := range records {
					records[i] = rec("m", "")
				}
				short, cancel := context.WithTimeout(ctx, patience)
				err := store.Append(short, records...)
				if ended := short.Err(); err == nil {
					appended += each
				} else {
					require.ErrorIs(t, err, ended)
				}
				cancel()
			}
			return nil
		}))
		requireCounts(t, store, placed, appended)
	})

	t.Run("two stores in one context each find their own transaction", func(t *testing.T) {
		t.Parallel()
		first, second := newStore(t), newStore(t)
		require.NoError(t, first.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
			require.ErrorIs(t, second.Append(ctx, rec("m", "")), outmill.ErrForeignTx)
			return second.InTx(ctx, func(ctx context.Context, _ *sql.Tx) error {
				return errors.Join(first.Append(ctx, rec("m1", "")), second.Append(ctx, rec("m2", "")))
			})
		}))
		for _, store := range []file{first, second} {
			require.Equal(t, 1, number(t, store.DB(), `SELECT count(*) FROM outmill_records`))
		}
	})

	t.Run("a deferred transaction that read before gets the remedy", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(store.path))
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		tx, err := db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, tx.Rollback()) }()
		var records int
		require.NoError(t, tx.QueryRowContext(t.Context(), `SELECT count(*) FROM outmill_records`).Scan(&records))
		appendAll(t, store, rec("in between", ""))
		err = store.Append(store.WithTx(t.Context(), tx), rec("m1", ""))
		require.ErrorContains(t, err, "BEGIN IMMEDIATE")
		require.ErrorContains(t, err, "store.InTx")
	})

	t.Run("adopting a transaction is a setting", func(t *testing.T) {
		t.Parallel()
		type key struct{}
		plain := newStore(t)
		adopting, err := sqlite.New(plain.DB(), sqlite.Config{TxFromContext: sqlite.Adopt(func(ctx context.Context) (*sql.Tx, bool) {
			tx, ok := ctx.Value(key{}).(*sql.Tx)
			return tx, ok
		})}, nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, adopting.Close()) }()
		require.NoError(t, adopting.Append(t.Context(), rec("no transaction", "")))
		found, err := adopting.TxOf(t.Context())
		require.NoError(t, err)
		require.Nil(t, found)

		for _, commit := range []bool{false, true} {
			tx, err := plain.DB().BeginTx(t.Context(), nil)
			require.NoError(t, err)
			ctx := context.WithValue(t.Context(), key{}, tx)
			require.NoError(t, adopting.Append(ctx, rec(fmt.Sprint("within ", commit), "")))
			join := roles.Join{ExpectedSteps: 1}
			require.NoError(t, adopting.StartJoin(ctx, &join))
			found, err = adopting.TxOf(ctx)
			require.NoError(t, err)
			require.True(t, found == any(tx))
			found, err = plain.TxOf(ctx)
			require.NoError(t, err)
			require.Nil(t, found, "it is the setting of one store")
			end := tx.Rollback
			if commit {
				end = tx.Commit
			}
			require.NoError(t, end())
			_, err = adopting.GetJoin(t.Context(), join.ID)
			require.Equal(t, commit, err == nil)
			require.ErrorIs(t, adopting.Append(ctx, rec("late", "")), outmill.ErrInvalidTx)
		}
		all, err := plain.List(t.Context(), outmill.ListQuery{})
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"no transaction", "within true"}, names(all))
		require.ErrorIs(t, adopting.Append(context.WithValue(t.Context(), key{}, (*sql.Tx)(nil)), rec("never", "")), outmill.ErrInvalidTx)

		own, err := plain.DB().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		other := adopting.WithTx(context.WithValue(t.Context(), key{}, (*sql.Tx)(nil)), own)
		found, err = adopting.TxOf(other)
		require.NoError(t, err)
		require.True(t, found == any(own), "what WithTx was given comes first")
		require.NoError(t, own.Rollback())
	})
}

// wrapped is a handle like watermill-sql's adapters.
type wrapped struct{ *sql.Tx }

// uncomparable makes == panic.
type uncomparable struct {
	*sql.Tx
	_ []int
}
