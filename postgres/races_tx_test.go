package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest"
)

func TestStore_RacesTx(t *testing.T) {
	t.Parallel()

	t.Run("a transaction that began before a registration loses nothing", func(t *testing.T) {
		t.Parallel()
		for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
			t.Run(string(level), func(t *testing.T) {
				t.Parallel()
				r := newRing(t, storetest.Options{})
				_, err := r.store.DropGroup(t.Context(), readers)
				require.NoError(t, err)
				tx, err := r.db.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
				require.NoError(t, err)
				r.t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
				r.execIn(tx, `SELECT count(*) FROM {records}`)
				other := reopen(t, r.store)
				require.NoError(t, other.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
				ctx := r.store.WithTx(t.Context(), tx)
				require.NoError(t, r.store.Append(ctx, &outmill.Record{Topic: "orders", Key: "key", MessageID: "first"}))
				require.Empty(t, r.claim(outmill.NewOwnerToken(), 1))
				require.NoError(t, tx.Commit(t.Context()))
				r.append("key", "second")
				require.Equal(t, []string{"first", "second"}, namesOf(r.claim(outmill.NewOwnerToken(), 5)))
			})
		}
	})

	t.Run("a dedup key that an open transaction holds is decided by its end", func(t *testing.T) {
		t.Parallel()
		for name, commit := range map[string]bool{"commit": true, "rollback": false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := newRing(t, storetest.Options{})
				tx := r.begin()
				require.NoError(t, r.store.Append(r.store.WithTx(t.Context(), tx), deduplicated("first")))
				second := deduplicated("second")
				done := async(func() (int, error) { return 0, r.store.Append(t.Context(), second) })
				r.blocked(1)
				if commit {
					require.NoError(t, tx.Commit(t.Context()))
				} else {
					require.NoError(t, tx.Rollback(t.Context()))
				}
				await(t, done)
				require.Equal(t, commit, second.Duplicate)
				require.Equal(t, 1, len(r.drained(readers)))
			})
		}
	})

	t.Run("a dedup key of a savepoint that was rolled back is free", func(t *testing.T) {
		t.Parallel()
		r := newRing(t, storetest.Options{})
		require.NoError(t, r.store.InTx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
			inner, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			one, two := deduplicated("inner"), deduplicated("again")
			if err := r.store.Append(r.store.WithTx(ctx, inner), one, two); err != nil {
				return err
			}
			require.False(t, one.Duplicate)
			require.True(t, two.Duplicate)
			if err := inner.Rollback(ctx); err != nil {
				return err
			}
			three, four := deduplicated("outer"), deduplicated("outer again")
			err = errors.Join(r.store.Append(ctx, three), r.store.Append(ctx, four))
			require.False(t, three.Duplicate)
			require.True(t, four.Duplicate)
			return err
		}))
		require.Equal(t, []string{"outer"}, namesOf(r.claim(outmill.NewOwnerToken(), 5)))
	})

	t.Run("a transaction of the store is repeated after a deadlock and one of a caller returns the error (OBX-099)", func(t *testing.T) {
		t.Parallel()
		for name, victim := range map[string]bool{"the caller's dies": true, "the store's dies": false} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := newRing(t, storetest.Options{})
				timeout := map[bool]string{true: "100ms", false: "1h"}
				config := r.db.Config()
				config.ConnConfig.RuntimeParams["deadlock_timeout"] = timeout[!victim]
				db, err := pgxpool.NewWithConfig(context.WithoutCancel(t.Context()), config)
				require.NoError(t, err)
				t.Cleanup(db.Close)
				own := newStore(t, db, r.store.config)

				tx := r.begin()
				r.execIn(tx, `SET LOCAL deadlock_timeout = '`+timeout[victim]+`'`)
				keyed := func(key string) *outmill.Record {
					return &outmill.Record{Topic: "orders", MessageID: key, DedupKey: key}
				}
				ctx := r.store.WithTx(t.Context(), tx)
				require.NoError(t, r.store.Append(ctx, keyed("b")))
				a, b := keyed("a"), keyed("b")
				done := async(func() (int, error) { return 0, own.Append(t.Context(), a, b) })
				r.blocked(1)
				err = r.store.Append(ctx, keyed("a"))
				if victim {
					var told *pgconn.PgError
					require.ErrorAs(t, err, &told)
					require.Equal(t, "40P01", told.Code)
					require.NoError(t, tx.Rollback(t.Context()))
					await(t, done)
					require.False(t, a.Duplicate || b.Duplicate)
					return
				}
				require.NoError(t, err)
				require.NoError(t, tx.Commit(t.Context()))
				await(t, done)
				require.True(t, a.Duplicate && b.Duplicate)
			})
		}
	})

	t.Run("a serialization failure in a caller's transaction is the drivers", func(t *testing.T) {
		t.Parallel()
		r := newRing(t, storetest.Options{})
		tx, err := r.db.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		require.NoError(t, err)
		t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
		r.execIn(tx, `SELECT count(*) FROM {records}`)
		require.NoError(t, r.store.Append(t.Context(), deduplicated("first")))
		err = r.store.Append(r.store.WithTx(t.Context(), tx), deduplicated("second"))
		var told *pgconn.PgError
		require.ErrorAs(t, err, &told)
		require.Equal(t, "40001", told.Code)
		// The call has undone what it did, and the snapshot is the same.
		err = r.store.Append(r.store.WithTx(t.Context(), tx), deduplicated("third"))
		require.ErrorAs(t, err, &told)
		require.Equal(t, "40001", told.Code)
		require.NoError(t, r.store.Append(r.store.WithTx(t.Context(), tx), made("orders", "without a dedup key", 1)...))
		require.NoError(t, tx.Commit(t.Context()))
		require.Equal(t, []string{"first", "without a dedup key-0"}, r.drained(readers))
	})

	t.Run("an append that is cut short in a caller's transaction writes nothing", func(t *testing.T) {
		t.Parallel()
		r := newRing(t, storetest.Options{})
		holder := r.begin()
		require.NoError(t, r.store.Append(r.store.WithTx(t.Context(), holder), deduplicated("first")))
		tx := r.begin()
		ctx, cancel := context.WithCancel(t.Context())
		done := async(func() (int, error) { return 0, r.store.Append(r.store.WithTx(ctx, tx), deduplicated("second")) })
		r.blocked(1)
		cancel()
		require.ErrorIs(t, (<-done).err, context.Canceled)
		require.Error(t, r.store.Append(r.store.WithTx(t.Context(), tx), deduplicated("third")))
		require.Error(t, tx.Commit(t.Context()))
		require.NoError(t, holder.Commit(t.Context()))
		require.Equal(t, 1, len(r.drained(readers)))
		err := r.store.Append(r.store.WithTx(t.Context(), holder), deduplicated("fourth"))
		require.ErrorIs(t, err, outmill.ErrInvalidTx)
	})

	t.Run("the records of one append are in their order", func(t *testing.T) {
		t.Parallel()
		r := newRing(t, storetest.Options{})
		require.NoError(t, r.store.RegisterGroup(t.Context(), outmill.Registration{Group: "others"}))
		records := made("orders", "many", 5000)
		for i, one := range records {
			one.Key = "key"
			if i%3 == 0 {
				one.DedupKey = fmt.Sprint("once ", 5000-i)
			}
		}
		require.NoError(t, r.store.Append(t.Context(), records...))
		for _, group := range []string{readers, "others"} {
			require.Equal(t, namesOf(records), r.drained(group))
		}
	})

	t.Run("ten thousand leases of many owners and claims are settled in one call", func(t *testing.T) {
		t.Parallel()
		r := newRing(t, storetest.Options{})
		require.NoError(t, r.store.Append(t.Context(), made("orders", "many", 10_000)...))
		var leases []outmill.Lease
		for range 10 {
			leases = append(leases, leasesOf(claimed(t, r.store, claimOf(outmill.NewOwnerToken(), 1000, outmill.OrderNone, "orders")))...)
		}
		require.Len(t, leases, 10_000)
		wrong := leases[0]
		wrong.Claim++
		twice := append([]outmill.Lease{leases[0], wrong}, leases[1:]...)
		twice = append(append(twice, leases[:100]...), wrong)
		held, err := r.store.Extend(t.Context(), time.Minute, twice)
		require.NoError(t, err)
		require.Equal(t, 10_000, len(held))
		abandonments := make([]outmill.Settlement, len(twice))
		for i, l := range twice {
			abandonments[i] = outmill.Settlement{Lease: l, Err: fmt.Sprint(i)}
		}
		require.NoError(t, r.store.Abandon(t.Context(), abandonments))
		require.Equal(t, 10_000, valueOf[int](t, r.db, r.sql(`SELECT count(*) FROM {records} WHERE attempts = 1 AND stage = 2`)))
	})
}

func deduplicated(name string) *outmill.Record {
	return &outmill.Record{Topic: "orders", MessageID: name, DedupKey: "once"}
}
