package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres"
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
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				eachLane(t, storetest.Options{Retain: time.Hour}, func(t *testing.T, r *ring) {
					r.append("key", "one")
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
			})
		}
	})

	t.Run("a record released between two pages of an ordered claim keeps its place", func(t *testing.T) {
		t.Parallel()
		r := newRing(t, postgres.LaneRows, storetest.Options{})
		r.blockedPage()
		r.append("key", "first")
		first := r.claim(outmill.NewOwnerToken(), 1)
		require.Equal(t, []string{"first"}, namesOf(first))
		r.fillPage()
		r.append("key", "second")

		secondPage := r.gates.before(t, "nth", 2)
		owner := outmill.NewOwnerToken()
		claim := async(func() ([]*outmill.Record, error) {
			return r.gated.Claim(t.Context(), claimOf(owner, 1, outmill.OrderKey, "orders"))
		})
		secondPage.wait(t)
		require.NoError(t, r.store.Release(t.Context(), leasesOf(first)))
		secondPage.open()
		require.NotContains(t, namesOf(await(t, claim)), "second")
	})

	t.Run("a record committed between two pages of an ordered claim keeps its place", func(t *testing.T) {
		t.Parallel()
		r := newRing(t, postgres.LaneRows, storetest.Options{})
		r.blockedPage()
		writer := r.begin()
		require.NoError(t, r.store.Append(r.store.WithTx(t.Context(), writer), &outmill.Record{Topic: "orders", Key: "key", MessageID: "first"}))
		r.fillPage()

		secondPage := r.gates.before(t, "nth", 2)
		claim := async(func() ([]*outmill.Record, error) {
			return r.gated.Claim(t.Context(), claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey, "orders"))
		})
		secondPage.wait(t)
		require.NoError(t, writer.Commit(t.Context()))
		r.append("key", "second")
		secondPage.open()
		require.NotContains(t, namesOf(await(t, claim)), "second")
	})

	t.Run("a requeue during a claim that parks brings the whole key back", func(t *testing.T) {
		t.Parallel()
		eachLane(t, storetest.Options{}, func(t *testing.T, r *ring) {
			parking := claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey, "orders")
			parking.KeyPolicy = outmill.KeyPark
			r.append("key", "first")
			first := claimed(t, r.store, parking)
			require.Len(t, first, 1)
			require.NoError(t, r.store.Fail(t.Context(), []outmill.Settlement{{Lease: first[0].Lease(), Err: "dead", Park: true}}))
			r.append("key", "second")

			park := r.gates.before(t, "parked = true", 1)
			claim := async(func() ([]*outmill.Record, error) { return r.gated.Claim(t.Context(), parking) })
			park.wait(t)
			requeue := async(func() (int, error) { return r.store.Requeue(t.Context(), first[0].ID) })
			select {
			case done := <-requeue:
				require.NoError(t, done.err)
				park.open()
			case <-r.waitsForLock():
				park.open()
				await(t, requeue)
			}
			// It may continue with records that were requeued.
			names := namesOf(await(t, claim))
			parking.Limit = 2
			for range 2 {
				names = append(names, namesOf(claimed(t, r.store, parking))...)
			}
			require.Equal(t, []string{"first", "second"}, names)
		})
	})

	t.Run("a group that is registered again after half a drop has no record stuck", func(t *testing.T) {
		t.Parallel()
		eachLane(t, storetest.Options{}, func(t *testing.T, r *ring) {
			r.append("key", "first", "second")
			first := r.claim(outmill.NewOwnerToken(), 1)
			require.Len(t, first, 1)
			require.Empty(t, r.claim(outmill.NewOwnerToken(), 1), "second is held now")

			givingBack := r.gates.before(t, "SET grp = NULL", 1)
			ctx, cancel := context.WithCancel(t.Context())
			drop := async(func() (int, error) {
				_, err := r.gated.DropGroup(ctx, readers)
				return 0, err
			})
			givingBack.wait(t)
			cancel()
			givingBack.open()
			require.Error(t, (<-drop).err)

			require.NoError(t, r.store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
			require.NoError(t, r.store.Ack(t.Context(), "", leasesOf(first)))
			var found []*outmill.Record
			require.Eventually(t, func() bool {
				found = append(found, r.claim(outmill.NewOwnerToken(), 1)...)
				return len(found) > 0
			}, time.Minute, 10*time.Millisecond, "second is claimable, since it is still there")
		})
	})

	t.Run("a drop of a group gives back or deletes a record that is being extended", func(t *testing.T) {
		t.Parallel()
		eachLane(t, storetest.Options{}, func(t *testing.T, r *ring) {
			r.append("key", "one")
			others := outmill.Registration{Group: "others", Topics: outmill.Topics{Include: []string{"b"}}}
			require.NoError(t, r.store.RegisterGroup(t.Context(), others))
			require.NoError(t, r.store.Append(t.Context(), made("b", "two", 1)...))
			found := append(r.claim(outmill.NewOwnerToken(), 1), claimed(t, r.store, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone, "b"))...)
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
	})

	t.Run("waiting records are not given to a group that is being dropped", func(t *testing.T) {
		t.Parallel()
		eachLane(t, storetest.Options{}, func(t *testing.T, r *ring) {
			_, err := r.store.DropGroup(t.Context(), readers)
			require.NoError(t, err)
			r.append("key", "one")

			adoption := r.gates.before(t, "SET grp = ", 1)
			register := async(func() (int, error) {
				return 0, r.gated.RegisterGroup(t.Context(), outmill.Registration{Group: "first"})
			})
			adoption.wait(t)
			_, err = r.store.DropGroup(t.Context(), "first")
			require.NoError(t, err)
			adoption.open()
			<-register

			require.NoError(t, r.store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
			require.Equal(t, []string{"one"}, namesOf(r.claim(outmill.NewOwnerToken(), 1)))
		})
	})

	t.Run("a key whose blocker ends while a claim notes it is free within ten seconds", func(t *testing.T) {
		t.Parallel()
		eachLane(t, storetest.Options{}, func(t *testing.T, r *ring) {
			r.append("key", "first", "second")
			long := claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey, "orders")
			long.Lease = time.Hour
			first := claimed(t, r.store, long)
			require.Len(t, first, 1)
			other := outmill.NewOwnerToken()
			require.Empty(t, r.claim(other, 1), "second is held now")
			for range 12 {
				execute(t, r.db, r.sql(`UPDATE {lanes} SET until = statement_timestamp()`))
				require.Empty(t, r.claim(other, 1), "looked at again, and still blocked")
			}
			execute(t, r.db, r.sql(`UPDATE {lanes} SET until = statement_timestamp()`))

			note := r.gates.before(t, "looks = least", 1)
			claim := async(func() ([]*outmill.Record, error) {
				return r.gated.Claim(t.Context(), claimOf(other, 1, outmill.OrderKey, "orders"))
			})
			note.wait(t)
			require.NoError(t, r.store.Ack(t.Context(), "", leasesOf(first)))
			note.open()
			await(t, claim)

			passTime(t, r.db, r.schema, 10*time.Second)
			require.Equal(t, []string{"second"}, namesOf(r.claim(other, 1)))
		})
	})

	t.Run("a claim of two topics whose second fails returns the first with the error", func(t *testing.T) {
		t.Parallel()
		eachLane(t, storetest.Options{}, func(t *testing.T, r *ring) {
			require.NoError(t, r.store.Append(t.Context(), &outmill.Record{Topic: "a"}, &outmill.Record{Topic: "b"}))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stopped := r.gates.before(t, "pg_advisory_xact_lock", 2)
			var err error
			claim := async(func() ([]*outmill.Record, error) {
				var found []*outmill.Record
				found, err = r.gated.Claim(ctx, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey, "a", "b"))
				return found, nil
			})
			stopped.wait(t)
			cancel()
			stopped.open()
			require.Len(t, await(t, claim), 1)
			require.ErrorIs(t, err, context.Canceled)
		})
	})

	t.Run("claims of one topic that wait for each other leave the connections to others", func(t *testing.T) {
		t.Parallel()
		const waiting = 3
		eachLane(t, storetest.Options{}, func(t *testing.T, r *ring) {
			r.append("key", "first", "second")
			two := r.gated.Pool().Config()
			two.MaxConns = 2
			db, err := pgxpool.NewWithConfig(t.Context(), two)
			require.NoError(t, err)
			defer db.Close()
			store := newStore(t, db, r.store.config)
			claim := func() ([]*outmill.Record, error) {
				return store.Claim(t.Context(), claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey, "orders"))
			}
			leases := "owner = CASE"
			if r.store.config.Lane == postgres.LaneLog {
				leases = "INSERT INTO \"" + r.schema + "\".\"batches\""
			}
			leasing := r.gates.before(t, leases, 1)
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
	})
}

// Claims of a schema with a log read one page. Claims of other schemas, which read several, are
// tested on the records only.

// blockedPage fills the first page of an ordered claim with records that the claim must skip.
func (r *ring) blockedPage() {
	r.t.Helper()
	r.append("blocked", "blocker")
	require.Len(r.t, r.claim(outmill.NewOwnerToken(), 1), 1)
}

func (r *ring) fillPage() {
	r.t.Helper()
	var names []string
	for i := range 32 {
		names = append(names, fmt.Sprintf("blocked %d", i))
	}
	r.append("blocked", names...)
}

// waitsForLock is closed when a session of the database waits for a lock.
func (r *ring) waitsForLock() <-chan struct{} {
	waits := make(chan struct{})
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	ended := make(chan struct{})
	r.t.Cleanup(func() { cancel(); <-ended })
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			var n int
			err := r.db.QueryRow(ctx, `SELECT count(*), pg_sleep(0.005) FROM pg_stat_activity WHERE datname = current_database()
				AND wait_event_type = 'Lock'`).Scan(&n, nil)
			if err == nil && n > 0 {
				close(waits)
				return
			}
		}
	}()
	return waits
}
