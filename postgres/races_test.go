package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storetest"
)

func TestStore_Races(t *testing.T) {
	t.Parallel()

	t.Run("a settlement of a lease waits for an extension and then counts", func(t *testing.T) {
		t.Parallel()
		for name, settle := range map[string]func(r *ring, lease outmill.Lease) error{
			"abandon": func(r *ring, lease outmill.Lease) error {
				return r.store.Abandon(r.t.Context(), []outmill.Settlement{{Lease: lease, Err: "again"}})
			},
			"fail": func(r *ring, lease outmill.Lease) error {
				return r.store.Fail(r.t.Context(), []outmill.Settlement{{Lease: lease, Err: "dead"}})
			},
			"snooze": func(r *ring, lease outmill.Lease) error {
				return r.store.Snooze(r.t.Context(), []outmill.Settlement{{Lease: lease, Delay: time.Hour}})
			},
			"release": func(r *ring, lease outmill.Lease) error {
				return r.store.Release(r.t.Context(), []outmill.Lease{lease})
			},
			"ack": func(r *ring, lease outmill.Lease) error {
				return r.store.Ack(r.t.Context(), "", []outmill.Lease{lease})
			},
		} {
			for where, delay := range kinds {
				t.Run(name+" "+where, func(t *testing.T) {
					t.Parallel()
					r := newRing(t, storetest.Options{Retain: time.Hour})
					r.appendAs(delay, "key", "one")
					found := r.claim(outmill.NewOwnerToken(), 1)
					require.Len(t, found, 1)

					extension := r.extendAll()
					done := async(func() (int, error) { return 0, settle(r, found[0].Lease()) })
					r.blocked(1)
					require.NoError(t, extension.Commit(t.Context()))
					await(t, done)

					after, err := r.store.Get(t.Context(), found[0].ID)
					require.NoError(t, err)
					require.NotEqual(t, outmill.StatusLeased, after.Status)
				})
			}
		}
	})

	t.Run("a drop of a group gives back or deletes a record that is being extended", func(t *testing.T) {
		t.Parallel()
		for where, delay := range kinds {
			t.Run(where, func(t *testing.T) {
				t.Parallel()
				r := newRing(t, storetest.Options{})
				r.appendAs(delay, "key", "one")
				others := outmill.Registration{Group: "others", Topics: outmill.Topics{Include: []string{"b"}}}
				require.NoError(t, r.store.RegisterGroup(t.Context(), others))
				require.NoError(t, r.store.Append(t.Context(), &outmill.Record{Topic: "b", Delay: delay}))
				other := claimed(t, r.store, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone, "b"))
				found := append(r.claim(outmill.NewOwnerToken(), 1), other...)
				require.Len(t, found, 2)

				extension := r.extendAll()
				drop := async(func() (outmill.Dropped, error) { return r.store.DropGroup(t.Context(), readers) })
				r.blocked(1)
				require.NoError(t, extension.Commit(t.Context()))
				require.Equal(t, outmill.Dropped{GivenBack: 1, Deleted: 1}, await(t, drop))
				back, err := r.store.Get(t.Context(), found[0].ID)
				require.NoError(t, err)
				require.Empty(t, back.Group)
				_, err = r.store.Get(t.Context(), found[1].ID)
				require.ErrorIs(t, err, outmill.ErrNotFound)
			})
		}
	})

	t.Run("a key whose blocker ends while a claim notes it is free within ten seconds", func(t *testing.T) {
		t.Parallel()
		r := newRing(t, storetest.Options{})
		r.append("key", "first", "second")
		long := claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey, "orders")
		long.Lease = time.Hour
		first := claimed(t, r.store, long)
		require.Len(t, first, 1)
		other := outmill.NewOwnerToken()
		require.Empty(t, r.claim(other, 1), "second is held now")
		for range 12 {
			execute(t, r.db, r.sql(`UPDATE {notes} SET look_at = 1`))
			require.Empty(t, r.claim(other, 1), "looked at again, and still blocked")
		}
		execute(t, r.db, r.sql(`UPDATE {notes} SET look_at = 1`))

		note := r.gates.beforeStatement(t, "put_notes", 1)
		claim := async(func() ([]*outmill.Record, error) {
			return r.gated.Claim(t.Context(), claimOf(other, 1, outmill.OrderKey, "orders"))
		})
		note.wait(t)
		ack := async(func() (int, error) { return 0, r.store.Ack(t.Context(), "", leasesOf(first)) })
		r.doneOrBlocked(func() bool { return len(ack) > 0 })
		note.open()
		found := await(t, claim)
		await(t, ack)

		passTime(t, r.db, r.schema, 10*time.Second)
		require.Equal(t, []string{"second"}, namesOf(append(found, r.claim(other, 1)...)))
	})

	t.Run("claims of one topic that wait for each other leave the connections to others", func(t *testing.T) {
		t.Parallel()
		const waiting = 3
		for where, delay := range kinds {
			t.Run(where, func(t *testing.T) {
				t.Parallel()
				r := newRing(t, storetest.Options{})
				r.appendAs(delay, "key", "first")
				r.appendAs(delay, "another key", "second")
				two := r.gated.Pool().Config()
				two.MaxConns = 2
				db, err := pgxpool.NewWithConfig(t.Context(), two)
				require.NoError(t, err)
				defer closeSoon(t, db)
				store := newStore(t, db, r.store.config)
				claim := func() ([]*outmill.Record, error) {
					return store.Claim(t.Context(), claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey, "orders"))
				}
				// A claim of the log is one round trip, which is stopped before it begins. One of records has the lock of its line, and is
				// stopped before it leases.
				leasing := r.gates.beforeStatement(t, map[bool]string{false: "log_claim", true: "lease_same"}[delay > 0], 1)
				first := async(claim)
				leasing.wait(t)

				looked := db.Stat().AcquireCount() + waiting
				var others []<-chan result[[]*outmill.Record]
				for range waiting {
					others = append(others, async(claim))
				}
				require.Eventually(t, func() bool { return db.Stat().AcquireCount() >= looked }, patience, time.Millisecond)
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				for range 50 {
					require.NoError(t, store.Append(ctx, &outmill.Record{Topic: "other"}))
				}
				leasing.open()
				await(t, first)
				for _, other := range others {
					await(t, other)
				}
			})
		}
	})
}
