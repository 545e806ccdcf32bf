package memdriver_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/memdriver"
	"github.com/outmill/outmill/roles"
)

// A claim by topic that may take nothing ends, also beside pauses that have ended.
func TestRace_ClaimByTopicSpins(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	r.store = r.serial // the serial driver: no concurrency is needed
	ctx := r.Context()
	r.register(ctx)
	for range 40 {
		r.append(ctx, &outmill.Record{TenantID: "acme"})
	}
	scope := roles.PauseScope{TenantID: "acme"}
	r.ok(r.store.Pause(ctx, scope, "ann", "x"))
	require.Empty(t, r.claim(ctx, a, 100, anyOrder))
	r.append(ctx, rec("first", ""))
	require.Len(t, r.claim(ctx, a, 1, anyOrder), 1)
	_, err := r.store.Resume(ctx, scope)
	r.ok(err)
	before, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	began := time.Now()
	require.Empty(t, r.claim(before, b, 1, byTopic))
	require.Less(t, time.Since(began), time.Minute, "the claim went round until half of its time was over")
}

// A record that commits while a claim reads comes before later ones of its key.
func TestRace_CommitBetweenPages(t *testing.T) {
	t.Parallel()
	for name, order := range map[string]change{"key": func(*outmill.ClaimRequest) {}, "topic": byTopic} {
		t.Run(name, func(t *testing.T) {
			r := newRace(t)
			ctx := r.Context()
			r.register(ctx)
			call := map[string]string{"key": "Page", "topic": "Rows"}[name]
			// k1 gets its place, and its transaction stays open until the claim has read its first page.
			placed, read, committed := make(chan bool), make(chan bool), make(chan bool)
			r.append(ctx, rec("z", "z"))
			if name == "key" {
				require.Len(t, r.claim(ctx, c, 1), 1) // blocks z
			}
			go func() {
				defer close(committed)
				hooked := memdriver.WithHook(ctx, func(string) {})
				r.world.BeforeCommit(func() { close(placed); <-read })
				r.append(hooked, rec("k1", "k"))
			}()
			<-placed
			r.fill()
			got := ids(r.claim(r.at(call, 2, func() {
				close(read)
				<-committed
				r.append(ctx, rec("k2", "k"))
			}), a, 50, order))
			select {
			case <-committed:
			default: // the claim has read one page only
				close(read)
				<-committed
			}
			requireK1First(t, got)
		})
	}
}

// fill appends more than a page of records that a claim takes not: their key is blocked, or they have expired.
func (r *race) fill() {
	for range 60 {
		z := rec("z", "z")
		z.TimeToLive = time.Second
		r.append(r.Context(), z)
	}
	r.Elapse(r.store, 2*time.Second)
}

// A record that is given back while another claim reads comes before later ones of its key.
func TestRace_ReleaseBetweenPages(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	ctx := r.Context()
	r.register(ctx)
	r.append(ctx, rec("k1", "k"))
	k1 := r.claim(ctx, a, 1)
	r.append(ctx, rec("z", "z"))
	require.Len(t, r.claim(ctx, c, 1), 1)
	r.fill()
	r.append(ctx, rec("k2", "k"))
	got := ids(r.claim(r.at("Page", 2, func() { r.ok(r.store.Release(ctx, leases(k1...))) }), b, 50))
	_ = got
	got = append(got, ids(r.claim(ctx, b, 50))...)
	requireK1First(t, got)
}

// requireK1First fails if k2 came although k1 did not come, or came later.
func requireK1First(t *testing.T, got []string) {
	t.Helper()
	require.False(t, before(got, "k2", "k1"), "k2 came before k1: %v", got)
}

func before(list []string, x, y string) bool {
	i, j := len(list), len(list)
	for n, one := range list {
		if one == x {
			i = n
		}
		if one == y {
			j = n
		}
	}
	return i < j
}

// A record that somebody else adopts while a claim waits to do so comes before later ones of its key.
func TestRace_AdoptedByAnother(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	ctx := r.Context()
	open, commit, _ := r.Begin(r.store)
	r.append(open, rec("k1", "k")) // no group yet
	r.register(ctx)
	r.append(ctx, rec("x", ""))
	require.Len(t, r.claim(ctx, a, 5), 1) // the topic is known for a while
	r.ok(commit())
	r.append(ctx, rec("k2", "k"))
	got := ids(r.claim(r.at("Bump", 1, func() { r.register(ctx) }), a, 5))
	requireK1First(t, got)
}

// A record that waited for a first group, and is due when it is adopted, comes before later ones of its key.
func TestRace_AdoptedDue(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	r.store = r.serial // serial
	ctx := r.Context()
	open, commit, _ := r.Begin(r.store)
	delayed := rec("k1", "k")
	delayed.Delay = time.Second
	r.append(open, delayed)
	r.register(ctx)
	r.append(ctx, rec("x", ""))
	require.Len(t, r.claim(ctx, a, 5), 1)
	r.ok(commit())
	r.Elapse(r.store, 2*time.Second)
	r.append(ctx, rec("k2", "k"))
	got := ids(r.claim(ctx, a, 5))
	requireK1First(t, got)
}

// A record whose lease has ended, and which the reaper has locked, comes before later ones of its key.
func TestRace_ReaperHasLocked(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	ctx := r.Context()
	r.register(ctx)
	r.append(ctx, rec("k1", "k"))
	require.Len(t, r.claim(ctx, a, 1), 1)
	r.append(ctx, rec("k2", "k"))
	r.Elapse(r.store, time.Hour)
	var got []string
	_, err := r.store.ReapExpired(r.at("Apply", 1, func() { got = ids(r.claim(ctx, a, 5)) }), 10)
	r.ok(err)
	got = append(got, ids(r.claim(ctx, a, 5))...)
	requireK1First(t, got)
}

// A record without a group that commits while a claim reads comes before later ones of its key.
func TestRace_UnroutedBetweenPages(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	ctx := r.Context()
	open, commit, _ := r.Begin(r.store)
	r.append(open, rec("k1", "k")) // no group yet
	r.register(ctx)
	r.append(ctx, rec("z", "z"))
	require.Len(t, r.claim(ctx, c, 1), 1)
	r.fill()
	got := ids(r.claim(r.at("Page", 2, func() {
		r.ok(commit())
		r.append(ctx, rec("k2", "k"))
	}), a, 50))
	got = append(got, ids(r.claim(ctx, a, 50))...)
	requireK1First(t, got)
}

// A claim by topic that may take nothing ends, also beside a key that was held.
func TestRace_ClaimByTopicSpinsBesideKey(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	r.store = r.serial // serial
	ctx := r.Context()
	r.register(ctx)
	for range 41 {
		r.append(ctx, rec("", "k"))
	}
	first := r.claim(ctx, a, 1)
	require.Empty(t, r.claim(ctx, b, 100)) // holds 40
	r.ok(r.store.Abandon(ctx, []outmill.Settlement{{Lease: leases(first...)[0], Delay: time.Hour}}))
	before, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	began := time.Now()
	require.Empty(t, r.claim(before, c, 1, byTopic))
	require.Less(t, time.Since(began), time.Minute, "the claim went round until half of its time was over")
}
