package memdriver_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest"
)

var acme = roles.PauseScope{TenantID: "acme"}

func paused(id, key string) *outmill.Record {
	return &outmill.Record{MessageID: id, Key: key, TenantID: "acme"}
}

func (r *race) pause()  { r.Helper(); r.ok(r.store.Pause(r.Context(), acme, "ann", "x")) }
func (r *race) resume() { r.Helper(); _, err := r.store.Resume(r.Context(), acme); r.ok(err) }

// delete deletes the records with these message ids.
func (r *race) delete(messages ...string) {
	r.Helper()
	list, err := r.store.List(r.Context(), outmill.ListQuery{Group: group, Limit: 500})
	r.ok(err)
	for _, one := range list {
		for _, id := range messages {
			if one.MessageID == id {
				_, err := r.store.Delete(r.Context(), one.ID)
				r.ok(err)
			}
		}
	}
}

// all claims and acks until nothing comes any more.
func (r *race) all(order change) (got []string) {
	r.Helper()
	for range 50 {
		records := r.claim(r.Context(), c, 5, order)
		if len(records) == 0 {
			return got
		}
		got = append(got, ids(records)...)
		r.ok(r.store.Ack(r.Context(), "", leases(records...)))
	}
	return got
}

func byKey(*outmill.ClaimRequest) {}

// A claim by key drops no note of a pause under which another claim has held rows since, also if one of them was deleted.
func TestRace_PauseNoteOpenedAgain(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	ctx := r.Context()
	r.register(ctx)
	r.pause()
	// The first note holds records, so that claims without an order do not look for empty ones.
	r.append(ctx, rec("z1", "z"), rec("z2", "z"), rec("z3", "z"), rec("z4", "z"))
	z1 := r.claim(ctx, c, 1)
	require.Empty(t, r.claim(ctx, b, 5))
	r.append(ctx, paused("r0", "k0"))
	require.Equal(t, []string{"z2"}, ids(r.claim(ctx, c, 1, anyOrder))) // holds r0
	r.delete("r0")                                                      // the note of the pause is empty
	r.ok(r.store.Ack(ctx, "", leases(z1...)))
	r.claim(r.at("Apply", 1, func() {
		r.append(ctx, paused("x", "k1"))
		require.Equal(t, []string{"z3"}, ids(r.claim(ctx, b, 1, anyOrder))) // holds x
		r.append(ctx, paused("y", "k2"))
		require.Equal(t, []string{"z4"}, ids(r.claim(ctx, b, 1, anyOrder))) // holds y
		r.delete("y")
	}), a, 5)
	r.resume()
	r.Elapse(r.store, time.Hour)
	require.Contains(t, append(r.all(anyOrder), r.all(byKey)...), "x")
}

// A record that a claim without an order holds for a pause blocks its key, also for a claim by key that runs beside it.
func TestRace_HeldBesideClaimByKey(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	ctx := r.Context()
	r.register(ctx)
	r.pause()
	r.append(ctx, paused("k1", "k"), rec("k2", "k"))
	got := ids(r.claim(r.at("Page", 1, func() {
		require.Equal(t, []string{"k2"}, ids(r.claim(ctx, b, 5, anyOrder)))
		r.ok(r.store.Release(ctx, leases(r.leased()...)))
	}), a, 5))
	require.Empty(t, got, "k1 is paused")
}

// leased are the records that are leased.
func (r *race) leased() []*outmill.Record {
	r.Helper()
	list, err := r.store.List(r.Context(), outmill.ListQuery{Group: group, Status: outmill.StatusLeased, Limit: 500})
	r.ok(err)
	return list
}

// A drop that ends forgets no note of a key whose records were committed since the drop looked for some.
func TestRace_ForgottenNote(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	ctx := r.Context()
	r.register(ctx)
	open, commit, _ := r.Begin(r.store)
	r.append(open, rec("k1", "k"), rec("k2", "k"))
	_, err := r.store.DropGroup(r.at("Forget", 1, func() {
		r.ok(commit())
		require.Len(t, r.claim(ctx, a, 1), 1)
		require.Empty(t, r.claim(ctx, b, 5)) // holds k2
	}), group)
	r.ok(err)
	r.register(ctx)
	r.append(ctx, rec("k3", "k"))
	r.Elapse(r.store, time.Hour)
	require.Equal(t, []string{"k1", "k2", "k3"}, r.all(byKey))
}

// A claim without an order takes what claims by key have held, in each part of a fair topic.
func TestClaim_FreeOfHeldParts(t *testing.T) {
	t.Parallel()
	h := newHarness(t, storetest.Options{}, 0)
	store := open(t, h.store.db, h.options, 0, topic)
	ctx := t.Context()
	require.NoError(t, store.SetFairTopics(ctx))
	require.NoError(t, store.RegisterGroup(ctx, outmill.Registration{Group: group, Topics: outmill.Topics{Include: []string{topic}}}))
	for n := range 2 {
		for _, tenant := range []string{"acme", "other"} {
			require.NoError(t, store.Append(ctx, &outmill.Record{Topic: topic, Key: "k", TenantID: tenant, MessageID: fmt.Sprint(tenant, n)}))
		}
	}
	claim := func(owner outmill.OwnerToken, limit int, order outmill.Order) []string {
		records, err := store.Claim(ctx, outmill.ClaimRequest{
			Owner: owner, Group: group, Topics: outmill.Topics{Include: []string{topic}}, Limit: limit, Lease: time.Minute, Order: order,
		})
		require.NoError(t, err)
		return ids(records)
	}
	require.ElementsMatch(t, []string{"acme0", "other0"}, claim(a, 2, outmill.OrderKey))
	require.Empty(t, claim(b, 5, outmill.OrderKey)) // holds the others
	require.ElementsMatch(t, []string{"acme1", "other1"}, claim(c, 5, outmill.OrderNone))
}

// A claim that leaves nothing of a key leaves no note of it either.
func TestClaim_NoteLookedAtAgain(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	ctx := r.Context()
	r.register(ctx)
	r.append(ctx, rec("k1", "k"), rec("k2", "k"))
	require.Len(t, r.claim(ctx, a, 1), 1)
	require.Empty(t, r.claim(ctx, b, 5))
	r.Elapse(r.store, time.Second)
	require.Empty(t, r.claim(ctx, b, 5)) // it has looked twice
	require.Len(t, r.claim(ctx, a, 5), 1)
	require.Empty(t, r.harness.store.db.Notes())
}

// Stats knows how long a record has been due that a pause of before has held, beside one that goes on.
func TestStats_OldestOfHeld(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	r.store = r.serial
	ctx := r.Context()
	r.register(ctx)
	r.append(ctx, rec("k1", "k"), rec("k2", "k"))
	require.Len(t, r.claim(ctx, a, 1), 1)
	require.Empty(t, r.claim(ctx, b, 5)) // holds k2
	stats := func() time.Time {
		list, err := r.store.Stats(ctx, 100)
		r.ok(err)
		require.Len(t, list, 1)
		return list[0].OldestDue
	}
	oldest := stats()
	require.NotZero(t, oldest)
	r.pause() // of a tenant that has nothing
	require.Equal(t, oldest, stats())
}
