package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest"
)

func TestStore_LogEnded(t *testing.T) {
	t.Parallel()

	t.Run("in a log a claim and an ack leave no dead row", func(t *testing.T) {
		t.Parallel()
		eachOrder(t, func(r *tape, order outmill.Order) {
			for i := range 30 {
				r.append("key", fmt.Sprint(i))
				require.NoError(r.t, r.store.Ack(r.t.Context(), "", leasesOf(claimed(r.t, r.store, claimOf(r.owner, 1, order, "orders")))))
			}
			for _, table := range []string{"log", "batches", "ended"} {
				count := func(of string) int {
					return valueOf[int](r.t, r.db, r.sql(fmt.Sprintf(`SELECT count(%s) FROM {%s}`, of, table)))
				}
				require.Equal(r.t, 30, count("*"), "deleted from %s", table)
				require.Equal(r.t, 30, count("DISTINCT xmin::text"), "updated in %s: each row is of the transaction that has inserted it", table)
			}
			r.census()
		})
	})

	t.Run("in a log batches that are over are dropped and others are not", func(t *testing.T) {
		t.Parallel()
		r := newTape(t, tapePool(t), storetest.Options{})
		ctx := t.Context()
		r.lease(r.store.Store, "in work")
		part := r.lease(r.store.Store, "acked", "open")
		require.NoError(t, r.store.Ack(ctx, "", leasesOf(part[:1])))
		for i := range 20 {
			require.NoError(t, r.store.Ack(ctx, "", leasesOf(r.lease(r.store.Store, fmt.Sprint(i)))))
		}
		require.Equal(t, 22, valueOf[int](t, r.db, r.sql(`SELECT count(*) FROM {batches}`)))
		for range 2 {
			require.NoError(t, r.store.TidyBatches(ctx))
			require.Equal(t, 3, valueOf[int](t, r.db, r.sql(`SELECT count(*) FROM {batches}`)), "two in work, and the newest")
			require.Zero(t, valueOf[int](t, r.db, r.sql(`SELECT count(*) FROM {ended}`)), "the newest says so itself")
		}
		r.census("in work", "open")
		require.Empty(t, r.take(10, outmill.OrderNone))
		require.NoError(t, r.store.Ack(ctx, "", leasesOf(part[1:])))
		r.elapse(time.Hour)
		require.Equal(t, []string{"in work"}, r.take(10, outmill.OrderNone))
		r.lease(r.store.Store, "next")
		r.census("in work", "next")
	})

	// A snapshot that was taken before does not show changes that are made while a session
	// waits for the row of a batch.
	t.Run("in a log a batch ends once in every order of waiting", func(t *testing.T) {
		t.Parallel()
		ends := func(r *tape) pgx.Tx {
			tx := r.lockBatches()
			r.execIn(tx, `INSERT INTO {ended} SELECT line, n, token FROM {batches}`)
			return tx
		}
		for name, call := range map[string]func(r *tape, found []*outmill.Record) error{
			"ack": func(r *tape, found []*outmill.Record) error { return r.store.Ack(r.t.Context(), "", leasesOf(found)) },
			"ack of a part": func(r *tape, found []*outmill.Record) error {
				return r.store.Ack(r.t.Context(), "", leasesOf(found[:1]))
			},
			"abandon": func(r *tape, found []*outmill.Record) error {
				return r.store.Abandon(r.t.Context(), []outmill.Settlement{{Lease: found[0].Lease()}, {Lease: found[1].Lease()}})
			},
			"extend": func(r *tape, found []*outmill.Record) error {
				extended, err := r.store.Extend(r.t.Context(), time.Hour, leasesOf(found))
				require.Empty(r.t, extended)
				return err
			},
			"claim once the lease is over": func(r *tape, _ []*outmill.Record) error {
				again, err := r.store.Claim(r.t.Context(), claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey, "orders"))
				require.Empty(r.t, again)
				return err
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := newTape(t, tapePool(t), storetest.Options{})
				found := r.lease(r.store.Store, "a", "b")
				r.elapse(time.Hour)
				other := ends(r)
				called := async(func() (int, error) { return 0, call(r, found) })
				r.blocked(1)
				r.commit(other)
				await(t, called)
				r.census()
			})
		}
	})

	// A statement that waits for the tables while they are truncated sees their contents
	// afterwards.
	t.Run("in a log a call that waits while batches are dropped finds the remaining ones", func(t *testing.T) {
		t.Parallel()
		for name, call := range map[string]func(r *tape, found []*outmill.Record) error{
			"ack": func(r *tape, found []*outmill.Record) error { return r.store.Ack(r.t.Context(), "", leasesOf(found)) },
			"claim": func(r *tape, _ []*outmill.Record) error {
				_, err := r.store.Claim(r.t.Context(), claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey, "orders"))
				return err
			},
			"delete": func(r *tape, found []*outmill.Record) error {
				n, err := r.store.Delete(r.t.Context(), found[0].ID, found[1].ID)
				require.Equal(r.t, 2, n)
				return err
			},
			"get": func(r *tape, found []*outmill.Record) error {
				record, err := r.store.Get(r.t.Context(), found[0].ID)
				require.Equal(r.t, outmill.StatusLeased, record.Status)
				return err
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := newTape(t, tapePool(t), storetest.Options{})
				require.NoError(t, r.store.Ack(t.Context(), "", leasesOf(r.lease(r.store.Store, "done"))))
				found := r.lease(r.store.Store, "a", "b")
				require.NoError(t, call(r, r.lease(r.store.Store, "c", "d"))) // makes the plans
				r.append("", "e", "f")
				tidying := r.begin()
				r.execIn(tidying, `SELECT {log_tidy}(500, 50000)`)
				called := async(func() (int, error) { return 0, call(r, found) })
				r.blocked(1)
				r.commit(tidying)
				await(t, called)
				left := map[string][]string{"ack": {"e", "f"}, "claim": {"a", "b", "c", "d", "e", "f"}, "delete": {"e", "f"},
					"get": {"a", "b", "c", "d", "e", "f"}}
				r.census(left[name]...)
			})
		}
	})

	// Each line's position is deleted before it has many batches.
	t.Run("in a log finished batches of forgotten lines are dropped too", func(t *testing.T) {
		t.Parallel()
		r := newTape(t, tapePool(t), storetest.Options{})
		execute(t, r.db, r.sql(`INSERT INTO {ended} SELECT g, 1, 1 FROM generate_series(1, 20000) AS g`))
		require.NoError(t, r.store.TendSegments(t.Context()))
		require.Zero(t, valueOf[int](t, r.db, r.sql(`SELECT count(*) FROM {ended}`)))
	})

	// If a dump has a snapshot from before the batches were dropped, and reads their tables
	// afterwards, it has no batches.
	t.Run("in a log of which a dump has no batches all comes again in order", func(t *testing.T) {
		t.Parallel()
		eachOrder(t, func(r *tape, order outmill.Order) {
			huge := r.begin()
			r.in(huge, "key", numbered("huge", 6)...)
			r.append("key", "passed")
			require.Equal(r.t, []string{"passed"}, r.take(10, order))
			r.commit(huge)
			require.Equal(r.t, numbered("huge", 2), r.take(2, order))
			require.Equal(r.t, 1, valueOf[int](r.t, r.db, r.sql(`SELECT count(*) FROM {late}`)))
			execute(r.t, r.db, r.sql(`TRUNCATE {batches}, {ended}`))
			require.Equal(r.t, append(numbered("huge", 6), "passed"), r.drain(2, order))
			r.census(append(numbered("huge", 6), "passed")...)
		})
	})

	t.Run("in a log no call waits long while batches are dropped", func(t *testing.T) {
		t.Parallel()
		r := newTape(t, tapePool(t), storetest.Options{})
		found := r.lease(r.store.Store, "a")
		dump := r.begin()
		r.execIn(dump, `SELECT count(*) FROM {batches}`)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		require.NoError(t, r.store.TidyBatches(ctx), "it is tried another time")
		require.NoError(t, r.store.Ack(ctx, "", leasesOf(found)))
		require.NoError(t, dump.Rollback(t.Context()))
		r.census()
	})
}
