package memdriver_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/memdriver"
)

// A drop that dies leaves no record that nobody meets.
func TestRace_DropGroupDies(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	ctx := r.Context()
	r.register(ctx)
	r.append(ctx, rec("k1", "k"), rec("k2", "k"))
	k1 := r.claim(ctx, a, 1)
	require.Empty(t, r.claim(ctx, b, 5)) // holds k2
	for range 21 {
		list := make([]*outmill.Record, 100)
		for i := range list {
			list[i] = rec("", "")
		}
		r.append(ctx, list...)
	}
	dying, die := context.WithCancel(ctx)
	n := 0
	_, err := r.store.DropGroup(memdriver.WithHook(dying, func(call string) {
		if call == "Bump" {
			if n++; n == 3 { // the second transaction
				die()
			}
		}
	}), group)
	require.Error(t, err)
	r.register(ctx)
	r.store.Ack(ctx, "", leases(k1...))
	r.append(ctx, rec("k3", "k"))
	r.Elapse(r.store, time.Hour)
	var got []string
	for records := r.claim(ctx, c, 500); len(records) > 0; records = r.claim(ctx, c, 500) {
		got = append(got, ids(records)...)
		r.ok(r.store.Ack(ctx, "", leases(records...)))
	}
	require.Contains(t, got, "k2")
	require.Contains(t, got, "k3")
}

// What waits for a first group goes to the group that registered first, whatever is renewed in between.
func TestRace_FirstRegistration(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	r.store = r.serial
	ctx := r.Context()
	reg := func(g, t string) outmill.Registration {
		return outmill.Registration{Group: g, Topics: outmill.Topics{Include: []string{t}}}
	}
	r.ok(r.store.RegisterGroup(ctx, reg("old", "a"), reg("old", "b"), reg("old", "c")))
	open, commit, _ := r.Begin(r.store)
	r.append(open, rec("m", ""))
	r.ok(r.store.RegisterGroup(ctx, reg("old", "a"), reg("old", "b"), reg("old", "c"), reg("first", topic)))
	r.ok(r.store.RegisterGroup(ctx, reg("second", topic)))
	r.ok(commit())
	list := r.claim(ctx, a, 5, func(q *outmill.ClaimRequest) { q.Group = "second" })
	require.Empty(t, list, "what waited belongs to the group that registered first")
}

// Stats counts a record of a dropped group that commits after the drop.
func TestRace_StatsAfterDrop(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	r.store = r.serial // serial
	ctx := r.Context()
	r.register(ctx)
	open, commit, _ := r.Begin(r.store)
	r.append(open, rec("m", ""))
	_, err := r.store.DropGroup(ctx, group)
	r.ok(err)
	r.ok(commit())
	stats, err := r.store.Stats(ctx, 10)
	r.ok(err)
	require.Len(t, stats, 1)
}

// One transaction adopts a bounded number of records of all topics together.
func TestRace_AdoptionOfManyTopics(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	ctx := r.Context()
	for i := range 30 {
		var list []*outmill.Record
		for range 1000 {
			list = append(list, &outmill.Record{Topic: "t" + string(rune('A'+i))})
		}
		r.ok(r.store.Append(ctx, list...))
	}
	most, n := 0, 0
	hooked := memdriver.WithHook(ctx, func(call string) {
		switch call {
		case "Bump":
			n = 0
		case "Adopt":
			n += 1000
			most = max(most, n)
		}
	})
	r.ok(r.store.RegisterGroup(hooked, outmill.Registration{Group: group, Topics: outmill.Topics{Include: []string{"*"}}}))
	require.LessOrEqual(t, most, 1000, "rows in one transaction")
}

// A lease that is extended while the end of its registration is swept stays.
func TestRace_SweepBesideExtend(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	ctx := r.Context()
	r.ok(r.store.RegisterGroup(ctx, outmill.Registration{Group: group, Topics: outmill.Topics{Include: []string{topic}}, TTL: time.Minute}))
	r.append(ctx, rec("m", ""))
	got := r.claim(ctx, a, 1)
	r.Elapse(r.store, 2*time.Minute)
	var valid []outmill.Lease
	_, records, err := r.store.ExpireRegistrations(r.at("Apply", 1, func() {
		var err error
		valid, err = r.store.Extend(ctx, time.Hour, leases(got...))
		r.ok(err)
	}), 100)
	r.ok(err)
	require.False(t, len(valid) == 1 && records == 1, "the lease was extended by an hour, and its record deleted")
}
