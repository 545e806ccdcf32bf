package sqlserver_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlserver"
)

// withOrders is a store in a database with a user's own table.
func withOrders(t *testing.T) (store *sqlserver.Store, orders string) {
	t.Helper()
	store, _ = ensured(t, sqlserver.Config{})
	orders = unique("Orders")
	execute(t, store.DB(), "CREATE TABLE "+orders+" (Name NVARCHAR(50) NOT NULL PRIMARY KEY)")
	return store, orders
}

// place writes to the user's own table and to the outbox.
func place(ctx context.Context, store *sqlserver.Store, tx sqlserver.Handle, orders, name string) error {
	if _, err := tx.ExecContext(ctx, "INSERT "+orders+" (Name) VALUES (@name)", sql.Named("name", name)); err != nil {
		return err
	}
	return store.Append(store.WithTx(ctx, tx), one(name))
}

func TestStore_Tx(t *testing.T) {
	t.Parallel()

	t.Run("the caller's commit decides whether the records exist", func(t *testing.T) {
		t.Parallel()
		store, orders := withOrders(t)
		for name, end := range map[string]func(*sql.Tx) error{"committed": (*sql.Tx).Commit, "rolled back": (*sql.Tx).Rollback} {
			tx, err := store.DB().BeginTx(t.Context(), nil)
			require.NoError(t, err)
			require.NoError(t, place(t.Context(), store, tx, orders, name))
			require.NoError(t, end(tx))
		}
		require.Equal(t, []string{"committed"}, listed(t, store))
		require.Equal(t, "committed", valueOf[string](t, store.DB(), "SELECT MIN(Name) FROM "+orders))
		require.Equal(t, 1, valueOf[int](t, store.DB(), "SELECT COUNT(*) FROM "+orders))
	})

	t.Run("a transaction whose function fails leaves nothing", func(t *testing.T) {
		t.Parallel()
		store, orders := withOrders(t)
		refusal := errors.New("no credit")
		err := store.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			require.NoError(t, place(ctx, store, tx, orders, "never"))
			return refusal
		})
		require.Equal(t, refusal, err)
		require.PanicsWithValue(t, "a bug", func() {
			_ = store.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
				require.NoError(t, place(ctx, store, tx, orders, "never either"))
				panic("a bug")
			})
		})
		require.Empty(t, listed(t, store))
		require.NoError(t, store.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			found, err := store.TxOf(ctx)
			require.NoError(t, err)
			require.True(t, found == any(tx))
			return place(ctx, store, tx, orders, "done")
		}))
		require.Equal(t, []string{"done"}, listed(t, store))
		require.Equal(t, 1, valueOf[int](t, store.DB(), "SELECT COUNT(*) FROM "+orders))
	})

	t.Run("a wrapper of a transaction is accepted", func(t *testing.T) {
		t.Parallel()
		store, _ := ensured(t, sqlserver.Config{})
		for name, wrap := range map[string]func(*sql.Tx) any{
			"wrapped":       func(tx *sql.Tx) any { return &wrapper{tx} },
			"in a field":    func(tx *sql.Tx) any { return struct{ Handle sqlserver.Handle }{tx} },
			"watermill-sql": func(tx *sql.Tx) any { return watermillsql.ContextExecutor(tx) },
		} {
			tx, err := store.DB().BeginTx(t.Context(), nil)
			require.NoError(t, err)
			record := one(name)
			record.Key, record.Payload, record.Metadata = "it's 'quoted'\n☃", []byte{0, 1, '"', '\'', 255}, map[string]string{"k'": `v"`}
			require.NoError(t, store.Append(store.WithTx(t.Context(), wrap(tx)), record))
			require.NoError(t, tx.Commit())
			found, err := store.Get(t.Context(), record.ID)
			require.NoError(t, err)
			require.Equal(t, []any{record.Key, record.Payload}, []any{found.Key, found.Payload})
		}
	})

	t.Run("adopting a transaction is a setting", func(t *testing.T) {
		t.Parallel()
		plain, table := ensured(t, sqlserver.Config{})
		adopting := newStore(t, plain.DB(), sqlserver.Config{Table: table, TxFromContext: sqlserver.Adopt(watermillsql.TxFromContext)})
		none := t.Context()
		require.NoError(t, adopting.Append(none, one("no transaction")))
		found, err := adopting.TxOf(none)
		require.NoError(t, err)
		require.Nil(t, found)

		type key struct{}
		own := newStore(t, plain.DB(), sqlserver.Config{Table: table, TxFromContext: sqlserver.Adopt(func(ctx context.Context) (*sql.Tx, bool) {
			tx, ok := ctx.Value(key{}).(*sql.Tx)
			return tx, ok
		})})
		tx, err := plain.DB().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		ctx := context.WithValue(t.Context(), key{}, tx)
		require.NoError(t, own.Append(ctx, one("within")))
		require.NoError(t, plain.Append(ctx, one("beside")))
		found, err = own.TxOf(ctx)
		require.NoError(t, err)
		require.True(t, found == any(tx))
		require.NoError(t, tx.Rollback())
		require.Equal(t, []string{"beside", "no transaction"}, listed(t, plain))
		require.ErrorIs(t, own.Append(ctx, one("late")), outmill.ErrInvalidTx)
		require.ErrorIs(t, own.Append(context.WithValue(t.Context(), key{}, (*sql.Tx)(nil)), one("never")), outmill.ErrInvalidTx)
	})

	t.Run("a value that is not a transaction is refused", func(t *testing.T) {
		t.Parallel()
		store, _ := ensured(t, sqlserver.Config{})
		over, err := store.DB().BeginTx(t.Context(), nil)
		require.NoError(t, err)
		require.NoError(t, over.Commit())
		require.ErrorIs(t, store.Append(store.WithTx(t.Context(), over), one("never")), outmill.ErrInvalidTx)
		for _, tx := range []any{nil, (*sql.Tx)(nil), store.DB(), struct{ *sql.DB }{store.DB()}, "text"} {
			ctx := store.WithTx(t.Context(), tx)
			require.ErrorIs(t, store.Append(ctx, one("never")), outmill.ErrInvalidTx, "%T", tx)
			_, err := store.TxOf(ctx)
			require.ErrorIs(t, err, outmill.ErrInvalidTx, "%T", tx)
		}
		require.Empty(t, listed(t, store))
	})

	t.Run("the transaction of another store is refused", func(t *testing.T) {
		t.Parallel()
		store, _ := ensured(t, sqlserver.Config{})
		other, _ := ensured(t, sqlserver.Config{})
		require.NoError(t, other.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
			require.ErrorIs(t, store.Append(ctx, one("never")), outmill.ErrForeignTx)
			return nil
		}))
		require.Empty(t, listed(t, store))
	})

	t.Run("appends of one transaction are serialised", func(t *testing.T) {
		t.Parallel()
		store, _ := ensured(t, sqlserver.Config{})
		require.NoError(t, store.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
			var appends errgroup.Group
			for i := range 8 {
				appends.Go(func() error { return store.Append(ctx, one(fmt.Sprint("m", i)), one(fmt.Sprint("n", i))) })
			}
			return appends.Wait()
		}))
		require.Len(t, listed(t, store), 16)
	})

	t.Run("a refused append leaves the transaction usable", func(t *testing.T) {
		t.Parallel()
		store, orders := withOrders(t)
		unknown := one("a step of no join")
		unknown.Joins = []outmill.JoinID{outmill.NewJoinID()}
		require.NoError(t, store.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			require.NoError(t, place(ctx, store, tx, orders, "before"))
			require.ErrorIs(t, store.Append(ctx, one("fine"), &outmill.Record{}), outmill.ErrInvalidRecord)
			require.ErrorIs(t, store.Append(ctx, unknown), roles.ErrUnknownJoin)
			return place(ctx, store, tx, orders, "after")
		}))
		require.Equal(t, []string{"after", "before"}, listed(t, store))
	})

	t.Run("an append that fails goes back to its savepoint, or ends the transaction under XACT_ABORT", func(t *testing.T) {
		t.Parallel()
		store, orders := withOrders(t)
		first := one("first")
		require.NoError(t, store.Append(t.Context(), first))
		for _, abort := range []bool{false, true} {
			again := one("again")
			again.ID = first.ID
			name := fmt.Sprint("abort ", abort)
			err := store.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
				if abort {
					_, err := tx.ExecContext(ctx, "SET XACT_ABORT ON")
					require.NoError(t, err)
				}
				require.NoError(t, place(ctx, store, tx, orders, name))
				require.ErrorAs(t, store.Append(ctx, one("with it"), again), new(mssql.Error))
				if abort {
					// The next append must not be committed by itself.
					require.ErrorIs(t, store.Append(ctx, one("after")), outmill.ErrInvalidTx)
				}
				return nil
			})
			require.Equal(t, abort, err != nil, "%v", err)
		}
		require.Equal(t, []string{"abort false", "first"}, listed(t, store))
		require.Equal(t, 1, valueOf[int](t, store.DB(), "SELECT COUNT(*) FROM "+orders))
	})

	t.Run("an append does not change the caller's session", func(t *testing.T) {
		t.Parallel()
		store, _ := ensured(t, sqlserver.Config{})
		allowSnapshot(t, store.DB())
		for _, c := range []struct {
			abort string
			level sql.IsolationLevel
		}{
			{"ON", sql.LevelReadCommitted},
			{"OFF", sql.LevelReadCommitted},
			{"ON", sql.LevelSnapshot},
			{"OFF", sql.LevelSnapshot},
			{"OFF", sql.LevelReadUncommitted},
			{"OFF", sql.LevelRepeatableRead},
			{"OFF", sql.LevelSerializable},
		} {
			name := c.level.String() + ", XACT_ABORT " + c.abort
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				conn, err := store.DB().Conn(t.Context())
				require.NoError(t, err)
				defer func() { require.NoError(t, conn.Close()) }()
				tx, err := conn.BeginTx(t.Context(), &sql.TxOptions{Isolation: c.level})
				require.NoError(t, err)
				defer func() { _ = tx.Rollback() }()
				_, err = tx.ExecContext(t.Context(), "SET XACT_ABORT "+c.abort)
				require.NoError(t, err)
				settings := func() (found [2]int) {
					require.NoError(t, tx.QueryRowContext(t.Context(), sessionSettings).Scan(&found[0], &found[1]))
					return found
				}
				before := settings()
				require.Equal(t, c.abort == "ON", before[1] != 0)
				require.NoError(t, store.Append(store.WithTx(t.Context(), tx), one(name)))
				require.Equal(t, before, settings())
				require.NoError(t, tx.Commit())
				require.Contains(t, listed(t, store), name)
			})
		}
	})

	t.Run("a pool whose sessions have another level serves the store too", func(t *testing.T) {
		t.Parallel()
		store, table := ensured(t, sqlserver.Config{})
		allowSnapshot(t, store.DB())
		for _, level := range []sql.IsolationLevel{sql.LevelSnapshot, sql.LevelSerializable} {
			db := sharedPool(t)
			db.SetMaxOpenConns(1)
			// A connection keeps a level after its transaction has ended.
			tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: level})
			require.NoError(t, err)
			require.NoError(t, tx.Commit())
			everything(t, newStore(t, db, sqlserver.Config{Table: table}))
		}
	})

	t.Run("groups that register while a transaction is open get its later records", func(t *testing.T) {
		t.Parallel()
		store, table := ensured(t, sqlserver.Config{})
		other := newStore(t, store.DB(), sqlserver.Config{Table: table})
		require.NoError(t, store.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
			require.NoError(t, store.Append(ctx, one("before")))
			require.NoError(t, other.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
			return store.Append(ctx, one("after"))
		}))
		require.Len(t, claimed(t, store, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey)), 2)
	})
}

// wrapper is a handle of the kind that query builders have.
type wrapper struct{ *sql.Tx }

// sessionSettings are the isolation level and whether XACT_ABORT is on.
const sessionSettings = "SELECT transaction_isolation_level, @@OPTIONS & 16384 FROM sys.dm_exec_sessions WHERE session_id = @@SPID"

// allowSnapshot allows the level in transactions.
func allowSnapshot(t *testing.T, db *sql.DB) {
	t.Helper()
	execute(t, db, "ALTER DATABASE CURRENT SET ALLOW_SNAPSHOT_ISOLATION ON")
}
