package postgres_test

import (
	"context"
	"database/sql"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest"
	"github.com/outmill/outmill/storetest/txtest"
)

// TestConformance_FromDB has the contract of transactions on a *sql.DB, where they are other ones, also under the race detector.
func TestConformance_FromDB(t *testing.T) {
	t.Parallel()
	testenv.Long(t, "the contract of transactions on a *sql.DB under the race detector")
	txtest.Run(t, engineFromDB(t))
}

// TestConformanceFromDB_Variant has the whole contract for stores on a *sql.DB.
func TestConformanceFromDB_Variant(t *testing.T) {
	t.Parallel()
	testenv.Unraced(t, "the contract on a *sql.DB")
	conform(t, engineFromDB(t))
}

// pools are a pool of database/sql and one of pgx, for the test's own statements, of one database.
type pools struct {
	sql *sql.DB
	pgx *pgxpool.Pool
}

func (p *pools) conforming(t *testing.T, config postgres.Config) conforming {
	t.Helper()
	store, err := postgres.NewFromDB(p.sql, config, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	config.DB = p.sql
	return conforming{store, config, p}
}

// openDB opens a pool of database/sql that has as many idle connections as open ones.
func openDB(t *testing.T, of *pgxpool.Pool, most int) *sql.DB {
	t.Helper()
	db := stdlib.OpenDB(*of.Config().ConnConfig)
	db.SetMaxOpenConns(most)
	db.SetMaxIdleConns(most)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// engineFromDB is engine for stores on a *sql.DB.
func engineFromDB(t *testing.T) storetest.Engine {
	t.Helper()
	db := pool(t)
	schemas, each := &testenv.Shelf{}, &poolsOfSchemas{t: t, config: db.Config()}
	var mu sync.Mutex
	made := map[string]*pools{}
	of := func(schema string) *pools {
		mu.Lock()
		defer mu.Unlock()
		if made[schema] == nil {
			own := each.of(schema)
			made[schema] = &pools{openDB(t, own, 40), own}
		}
		return made[schema]
	}
	return storetest.Engine{
		New: func(t *testing.T, options storetest.Options) storetest.Harness {
			name, found := schemas.Take()
			if options.NoSchema {
				name, found = ownSchema(t, db), true
			} else if !found {
				name = schemaName()
			}
			store := of(name).conforming(t, conformingConfig(name, "", options))
			if !options.NoSchema {
				schemas.Return(t, name, func() { wipe(t, db, name) })
			}
			if !found {
				require.NoError(t, store.Ensure(t.Context()))
			}
			if !options.NoSchema {
				setClock(t, db, name, 0) // an earlier test of the schema may have moved it
			}
			return sqlHarness{harness{t, store, schemas}}
		},
	}
}

func TestNewFromDB(t *testing.T) {
	t.Parallel()

	t.Run("a pool of another driver is refused with the type of the driver and the remedy", func(t *testing.T) {
		t.Parallel()
		db, err := sql.Open("postgres", "postgres://localhost/none")
		require.NoError(t, err)
		defer func() { require.NoError(t, db.Close()) }()
		_, err = postgres.NewFromDB(db, postgres.Config{}, nil)
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		require.ErrorContains(t, err, "*pq.Driver")
		require.ErrorContains(t, err, `sql.Open("pgx", url)`)
	})

	t.Run("no pool, or another one in the configuration, is refused", func(t *testing.T) {
		t.Parallel()
		_, err := postgres.NewFromDB(nil, postgres.Config{}, nil)
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		one, other := stdlib.OpenDB(*pool(t).Config().ConnConfig), &sql.DB{}
		defer func() { require.NoError(t, one.Close()) }()
		_, err = postgres.NewFromDB(one, postgres.Config{DB: other}, nil)
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		_, err = postgres.NewFromDB(one, postgres.Config{Schema: "$outmill$"}, nil)
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
	})

	t.Run("the store leaves the pool open, with no connection in use", func(t *testing.T) {
		t.Parallel()
		on := pool(t)
		db := openDB(t, on, 4)
		store, err := postgres.NewFromDB(db, postgres.Config{EnsureSchema: true}, nil)
		require.NoError(t, err)
		require.Nil(t, store.Pool())
		require.NoError(t, store.Append(t.Context(), made("orders", "m", 60)...))
		require.NoError(t, store.InTx(t.Context(), func(ctx context.Context, _ pgx.Tx) error {
			return store.Append(ctx, made("orders", "n", 60)...)
		}))
		require.NoError(t, store.Transact(t.Context(), func(ctx context.Context) error {
			_, ok := store.SQLTx(ctx)
			require.True(t, ok)
			return store.Append(ctx, made("orders", "o", 2)...)
		}))
		require.NoError(t, store.Close())
		require.Zero(t, db.Stats().InUse)
		var n int
		require.NoError(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM outmill.log").Scan(&n))
		require.ErrorIs(t, store.Append(t.Context(), made("orders", "p", 1)...), outmill.ErrClosed)
	})

	t.Run("a pool of one connection serves appends, claims and handlers", func(t *testing.T) {
		t.Parallel()
		db := openDB(t, pool(t), 1)
		store, err := postgres.NewFromDB(db, postgres.Config{EnsureSchema: true}, nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, store.Close()) }()
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
		require.NoError(t, store.Append(t.Context(), made("orders", "m", 3)...))
		found := claimed(t, store, claimOf(outmill.NewOwnerToken(), 3, outmill.OrderNone))
		require.Len(t, found, 3)
		require.NoError(t, store.Transact(t.Context(), func(ctx context.Context) error {
			return store.Append(ctx, made("others", "n", 1)...)
		}))
		require.NoError(t, store.Ack(t.Context(), "", leasesOf(found)))
	})

	t.Run("a pool over a pool of pgx serves, too", func(t *testing.T) {
		t.Parallel()
		on := pool(t)
		db := stdlib.OpenDBFromPool(on)
		defer func() { require.NoError(t, db.Close()) }()
		store, err := postgres.NewFromDB(db, postgres.Config{EnsureSchema: true}, nil)
		require.NoError(t, err)
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
		require.NoError(t, store.Append(t.Context(), made("orders", "m", 60)...))
		require.NotEmpty(t, claimed(t, store, claimOf(outmill.NewOwnerToken(), 3, outmill.OrderNone)))
		require.NoError(t, store.Close())
		require.Zero(t, on.Stat().AcquiredConns())
	})

	t.Run("a function in a transaction may lock its thread", func(t *testing.T) {
		t.Parallel()
		store, err := postgres.NewFromDB(openDB(t, pool(t), 2), postgres.Config{EnsureSchema: true}, nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, store.Close()) }()
		defer runtime.UnlockOSThread()
		require.NoError(t, store.InTx(t.Context(), func(ctx context.Context, _ pgx.Tx) error {
			runtime.LockOSThread()
			return store.Append(ctx, made("orders", "m", 1)...)
		}))
	})

	t.Run("a connection that broke in a call does not go back to the pool", func(t *testing.T) {
		t.Parallel()
		db := openDB(t, pool(t), 1)
		store, err := postgres.NewFromDB(db, postgres.Config{EnsureSchema: true, NotifyInterval: -1}, nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, store.Close()) }()
		require.NoError(t, store.Append(t.Context(), made("orders", "m", 1)...))
		err = store.InTx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
			return err
		})
		require.Error(t, err)
		require.NoError(t, store.Append(t.Context(), made("orders", "n", 1)...))
		require.Equal(t, 1, db.Stats().OpenConnections)
	})
	t.Run("readers listen, and use the pool only to learn its settings", func(t *testing.T) {
		t.Parallel()
		on := pool(t)
		db := openDB(t, on, 2)
		store, err := postgres.NewFromDB(db, postgres.Config{EnsureSchema: true}, nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, store.Close()) }()
		require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
		heard := testenv.Hints(t.Context(), store, "orders")
		wait := func() {
			t.Helper()
			select {
			case <-heard:
			case <-time.After(patience):
				require.FailNow(t, "no notification was heard")
			}
		}
		wait()
		require.True(t, store.HearsOthers())
		other := newStore(t, on, postgres.Config{})
		require.NoError(t, other.Append(t.Context(), made("orders", "m", 1)...))
		wait()
		require.Zero(t, db.Stats().InUse)
	})

	t.Run("doctor names a pool that keeps too few idle connections", func(t *testing.T) {
		t.Parallel()
		db := openDB(t, pool(t), 4)
		store, err := postgres.NewFromDB(db, postgres.Config{EnsureSchema: true}, nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, store.Close()) }()
		require.NoError(t, store.Ensure(t.Context()))
		codes := func() (codes []string) {
			e, err := store.Examine(t.Context(), roles.ExamineRequest{})
			require.NoError(t, err)
			for _, f := range e.Findings {
				codes = append(codes, f.Code)
			}
			return codes
		}
		require.NotContains(t, codes(), "pool_idle")
		db.SetMaxIdleConns(-1)
		for db.Stats().MaxIdleClosed < 100 {
			require.NoError(t, db.PingContext(t.Context()))
		}
		require.Contains(t, codes(), "pool_idle")
	})
}
