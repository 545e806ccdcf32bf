package sqlite_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
)

// invariants are queries that must never find a row.
var invariants = map[string]string{
	"a held record has a lane": `SELECT count(*) FROM outmill_records AS r WHERE stage = 1 AND NOT EXISTS (
		SELECT 1 FROM outmill_lanes AS l WHERE l.grp = r.grp AND l.topic = r.topic AND l.key = r.key AND l.head <= r.seq)`,
	"what a blocked lane names as its blocker is there, or its time has come": `SELECT count(*) FROM outmill_lanes AS l
		WHERE blocked_by <> '' AND until > CAST(unixepoch('subsec') * 1000 AS INTEGER) * 1000 AND NOT EXISTS (
			SELECT 1 FROM outmill_records AS r WHERE l.grp = r.grp AND l.topic = r.topic AND l.key = r.key
			AND (r.stage = 4 AND r.owner = l.blocked_by OR r.stage = 2 AND l.blocked_by = 'waiting'))`,
	"a blocked lane has an end": `SELECT count(*) FROM outmill_lanes WHERE blocked_by <> '' AND until IS NULL`,
	"status and stage agree": `SELECT count(*) FROM outmill_records WHERE CASE status
		WHEN 'pending' THEN stage NOT IN (0, 1, 2, 3, 5) WHEN 'leased' THEN stage <> 4 ELSE stage <> 6 END`,
	"a time of its own belongs to the stages 2 to 4": `SELECT count(*) FROM outmill_records WHERE (stage IN (2, 3,
		4)) <> (available_at IS NOT NULL)`,
	"an owner belongs to a lease": `SELECT count(*) FROM outmill_records WHERE (stage = 4) <> (owner <> '')`,
	"parked records are dead":     `SELECT count(*) FROM outmill_records WHERE parked > 0 AND status <> 'dead'`,
}

func TestStore_Lanes(t *testing.T) {
	t.Parallel()

	t.Run("after any calls on records of a key none is stranded", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		walks, failed := 0, false
		rapid.Check(t, func(rt *rapid.T) {
			// Once a walk has failed, rapid makes more of them to find a short one.
			if walks++; walks > testenv.Steps(20, math.MaxInt) && !failed {
				return
			}
			passed := false
			defer func() { failed = failed || !passed }()
			w := newLaneWalk(t, rt, store)
			rt.Repeat(map[string]func(*rapid.T){
				"append":  w.append,
				"claim":   w.claim,
				"settle":  w.settle,
				"elapse":  w.elapse,
				"janitor": w.janitor,
				"operate": w.operate,
				"":        w.check,
			})
			w.drain(rt)
			passed = true
		})
	})

	t.Run("records that expired while they were held do not hide those behind them", func(t *testing.T) {
		t.Parallel()
		const expiring = 5000
		store := newStore(t)
		first := rec("first", "k")
		appendAll(t, store, first)
		holder := claimRequest(outmill.NewOwnerToken(), 1, outmill.OrderKey)
		holder.Lease = 2 * time.Hour
		require.Equal(t, []string{"first"}, names(claim(t, store, holder)))
		behind := make([]*outmill.Record, expiring)
		for i := range behind {
			behind[i] = rec(fmt.Sprint(i), "k")
			behind[i].TimeToLive = time.Hour
		}
		appendAll(t, store, append(behind, rec("last", "k"))...)
		other := claimRequest(outmill.NewOwnerToken(), 1, outmill.OrderKey)
		require.Empty(t, claim(t, store, other))
		passTime(t, store.DB(), 61*time.Minute)
		n, err := store.Delete(t.Context(), first.ID)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, []string{"last"}, names(claim(t, store, other)))
		n, err = store.ExpireDue(t.Context(), 2*expiring)
		require.NoError(t, err)
		require.Equal(t, expiring, n)
	})
}

type laneWalk struct {
	t      *testing.T
	ctx    context.Context
	store  file
	owners []outmill.OwnerToken
	leased []*outmill.Record
	names  int
}

func newLaneWalk(t *testing.T, rt *rapid.T, store file) *laneWalk {
	for _, table := range []string{"records", "lanes"} {
		_, err := store.DB().ExecContext(t.Context(), "DELETE FROM outmill_"+table)
		require.NoError(rt, err)
	}
	return &laneWalk{t: t, ctx: t.Context(), store: store, owners: []outmill.OwnerToken{outmill.NewOwnerToken(), outmill.NewOwnerToken()}}
}

func (w *laneWalk) append(rt *rapid.T) {
	var records []*outmill.Record
	for range rapid.IntRange(1, 4).Draw(rt, "records") {
		w.names++
		r := rec(fmt.Sprint("m", w.names), rapid.SampledFrom([]string{"", "a", "a", "b"}).Draw(rt, "key"))
		r.Delay = rapid.SampledFrom([]time.Duration{0, 0, time.Hour}).Draw(rt, "delay")
		r.TimeToLive = rapid.SampledFrom([]time.Duration{0, 0, 2 * time.Hour}).Draw(rt, "time to live")
		records = append(records, r)
	}
	require.NoError(rt, w.store.Append(w.ctx, records...))
}

func (w *laneWalk) claim(rt *rapid.T) {
	req := claimRequest(rapid.SampledFrom(w.owners).Draw(rt, "owner"), rapid.SampledFrom([]int{1, 2, 10}).Draw(rt, "limit"),
		rapid.SampledFrom([]outmill.Order{outmill.OrderNone, outmill.OrderKey, outmill.OrderKey, outmill.OrderTopic}).Draw(rt, "order"))
	req.KeyPolicy = outmill.KeyPolicy(rapid.IntRange(0, 2).Draw(rt, "policy"))
	if req.Order == outmill.OrderTopic {
		req.KeyPolicy %= 2
	}
	req.Lease = time.Hour
	found, err := w.store.Claim(w.ctx, req)
	require.NoError(rt, err)
	w.leased = append(w.leased, found...)
}

func (w *laneWalk) settle(rt *rapid.T) {
	if len(w.leased) == 0 {
		rt.Skip("nothing is leased")
	}
	lease := rapid.SampledFrom(w.leased).Draw(rt, "record").Lease()
	delay := rapid.SampledFrom([]time.Duration{0, time.Hour}).Draw(rt, "delay")
	var err error
	switch rapid.IntRange(0, 5).Draw(rt, "how") {
	case 0:
		err = w.store.Ack(w.ctx, "", []outmill.Lease{lease})
	case 1:
		err = w.store.Abandon(w.ctx, []outmill.Settlement{{Lease: lease, Delay: delay}})
	case 2:
		err = w.store.Snooze(w.ctx, []outmill.Settlement{{Lease: lease, Delay: delay}})
	case 3:
		err = w.store.Release(w.ctx, []outmill.Lease{lease})
	case 4:
		err = w.store.Fail(w.ctx, []outmill.Settlement{{Lease: lease, Park: rapid.Bool().Draw(rt, "park")}})
	case 5:
		_, err = w.store.Extend(w.ctx, 2*time.Hour, []outmill.Lease{lease})
	}
	require.NoError(rt, err)
}

func (w *laneWalk) elapse(rt *rapid.T) {
	passTime(w.t, w.store.DB(), rapid.SampledFrom([]time.Duration{time.Minute, 61 * time.Minute}).Draw(rt, "time"))
}

func (w *laneWalk) janitor(rt *rapid.T) {
	call := rapid.SampledFrom([]func(context.Context, int) (int, error){w.store.ReapExpired, w.store.ExpireDue}).Draw(rt, "call")
	_, err := call(w.ctx, rapid.SampledFrom([]int{1, 100}).Draw(rt, "limit"))
	require.NoError(rt, err)
}

func (w *laneWalk) operate(rt *rapid.T) {
	all, err := w.store.List(w.ctx, outmill.ListQuery{})
	require.NoError(rt, err)
	if len(all) == 0 {
		rt.Skip("there are no records")
	}
	id := rapid.SampledFrom(all).Draw(rt, "record").ID
	if rapid.Bool().Draw(rt, "delete") {
		_, err = w.store.Delete(w.ctx, id)
	} else {
		_, err = w.store.Requeue(w.ctx, id)
	}
	require.NoError(rt, err)
}

func (w *laneWalk) check(rt *rapid.T) {
	for sentence, query := range invariants {
		require.Zero(rt, number(rt, w.store.DB(), query), sentence)
	}
}

// drain acks all records in the order of the keys. None may be left.
func (w *laneWalk) drain(rt *rapid.T) {
	passTime(w.t, w.store.DB(), 3*time.Hour)
	policy := outmill.KeyPolicy(rapid.IntRange(0, 1).Draw(rt, "policy"))
	last := map[string]outmill.WorkItemID{}
	for {
		req := claimRequest(w.owners[0], 3, outmill.OrderKey)
		req.KeyPolicy = policy
		found, err := w.store.Claim(w.ctx, req)
		require.NoError(rt, err)
		if len(found) == 0 {
			break
		}
		for _, r := range found {
			if r.Key != "" {
				require.Less(rt, last[r.Key].String(), r.ID.String(), "order of key %q", r.Key)
				last[r.Key] = r.ID
			}
		}
		require.NoError(rt, w.store.Ack(w.ctx, "", leases(found)))
	}
	w.check(rt)
	const left = `SELECT count(*) FROM outmill_records WHERE stage NOT IN (5, 6)
		AND NOT (stage = 4 AND expires_at <= unixepoch() * 1000000)`
	require.Zero(rt, number(rt, w.store.DB(), left), "records that were never claimed")
}
