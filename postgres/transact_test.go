package postgres_test

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/roles"
)

// transacting are stores whose transactions are pgx's, and database/sql's.
func transacting(t *testing.T) map[string]*postgres.Store {
	t.Helper()
	database := readyDatabase(t, postgres.Config{})
	db, err := sql.Open("pgx", database)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	stores := map[string]*postgres.Store{
		"pgx":          newStore(t, connect(t, database), postgres.Config{}),
		"database/sql": newStore(t, connect(t, database), postgres.Config{DB: db}),
	}
	require.NoError(t, stores["pgx"].Ensure(t.Context()))
	return stores
}

// raise fails the transaction as PostgreSQL does.
func raise(ctx context.Context, store *postgres.Store, code string) error {
	return execIn(ctx, store, "DO $$ BEGIN RAISE EXCEPTION 'raised' USING ERRCODE = '"+code+"'; END $$")
}

// execIn sends a statement in the transaction that ctx carries.
func execIn(ctx context.Context, store *postgres.Store, text string) error {
	carried, err := store.TxOf(ctx)
	switch tx := carried.(type) {
	case pgx.Tx:
		_, err = tx.Exec(ctx, text)
	case *sql.Tx:
		_, err = tx.ExecContext(ctx, text)
	default:
		err = fmt.Errorf("the context carries a %T: %w", carried, cmp.Or(err, outmill.ErrNoTx))
	}
	return err
}

func TestStore_Transact(t *testing.T) {
	t.Parallel()
	for name, store := range transacting(t) {
		t.Run("repeats the function in a new transaction after a temporary error, with "+name, func(t *testing.T) {
			t.Parallel()
			for _, code := range []string{"40001", "40P01"} {
				calls := 0
				require.NoError(t, store.Transact(t.Context(), func(ctx context.Context) error {
					require.NoError(t, store.Append(ctx, &outmill.Record{Topic: "passes " + name + code}))
					if calls++; calls < 3 {
						return raise(ctx, store, code)
					}
					return nil
				}))
				require.Equal(t, 3, calls)
				found, err := store.List(t.Context(), outmill.ListQuery{Topic: "passes " + name + code})
				require.NoError(t, err)
				require.Len(t, found, 1)
			}
		})
		t.Run("does not repeat after a permanent error, with "+name, func(t *testing.T) {
			t.Parallel()
			calls := 0
			require.ErrorContains(t, store.Transact(t.Context(), func(ctx context.Context) error {
				calls++
				return raise(ctx, store, "23505")
			}), "raised")
			require.Equal(t, 1, calls)
		})
		t.Run("does not repeat a wait for a note, with "+name, func(t *testing.T) {
			t.Parallel()
			note := roles.Note{Consumer: "c " + name, Key: "k", Retention: time.Hour}
			require.NoError(t, store.Transact(t.Context(), func(ctx context.Context) error {
				_, err := store.PutNote(ctx, note, 0)
				require.NoError(t, err)
				calls := 0
				require.ErrorIs(t, store.Transact(t.Context(), func(ctx context.Context) error {
					calls++
					_, err := store.PutNote(ctx, note, time.Millisecond)
					return err
				}), roles.ErrNoteBusy)
				require.Equal(t, 1, calls)
				return nil
			}))
		})
		t.Run("reads committed data, and returns its transaction by the accessor of its kind, with "+name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, store.Transact(t.Context(), func(ctx context.Context) error {
				_, isPgx := store.Tx(ctx)
				sqlTx, isSQL := store.SQLTx(ctx)
				require.Equal(t, []bool{name == "pgx", name != "pgx"}, []bool{isPgx, isSQL})
				level := ""
				if isSQL {
					require.NoError(t, sqlTx.QueryRowContext(ctx, "SHOW transaction_isolation").Scan(&level))
				} else {
					tx, _ := store.Tx(ctx)
					require.NoError(t, tx.QueryRow(ctx, "SHOW transaction_isolation").Scan(&level))
				}
				require.Equal(t, "read committed", level)
				return nil
			}))
			_, ok := store.Tx(t.Context())
			require.False(t, ok)
		})
	}
}

func TestStore_PutNote(t *testing.T) {
	t.Parallel()
	t.Run("leaves the caller's lock_timeout as it was", func(t *testing.T) {
		t.Parallel()
		store := transacting(t)["pgx"]
		require.NoError(t, store.Transact(t.Context(), func(ctx context.Context) error {
			tx, _ := store.Tx(ctx)
			_, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '77s'")
			require.NoError(t, err)
			_, err = store.PutNote(ctx, roles.Note{Consumer: "c", Key: "k", Retention: time.Hour}, time.Second)
			require.NoError(t, err)
			var timeout string
			require.NoError(t, tx.QueryRow(ctx, "SHOW lock_timeout").Scan(&timeout))
			require.Equal(t, "77s", timeout)
			return nil
		}))
	})
}
