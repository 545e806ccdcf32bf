package storetest

import (
	"bytes"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
)

// check compares all that can be seen of the store with the model.
func (w *walk) check(t *rapid.T) {
	listed := listAll(w.ctx(), t, w.store, outmill.ListQuery{})
	require.Len(t, listed, len(w.m.items), "records\nstore: %q\nmodel:\n%s", names(listed), &w.m)
	last := outmill.WorkItemID{}
	for _, r := range listed {
		it := w.m.find(r.ID)
		require.NotNil(t, it, "%s is in the store, but not in the model", r.MessageID)
		w.requireSame(it, r)
		require.Negative(t, bytes.Compare(last[:], r.ID[:]), "List is not in the order of the ids: %q", names(listed))
		last = r.ID
	}
	// Statistics cost more than anything else.
	if w.steps++; w.steps%4 == 0 {
		w.checkStats(t)
	}
}

func (w *walk) requireSame(it *item, r *outmill.Record) {
	w.t.Helper()
	type visible struct {
		Name, Group, Topic, Key string
		Status                  outmill.Status
		Attempts, Claims        int
		Owner                   outmill.OwnerToken
		ProcessedBy             string
	}
	require.Equal(w.t,
		visible{it.name, it.group, it.topic, it.key, it.status, it.attempts, it.claims, it.owner, it.processor},
		visible{r.MessageID, r.Group, r.Topic, r.Key, r.Status, r.Attempts, r.Claims, r.Owner, r.ProcessedBy},
		"model, store: %s", it)
	if it.status == outmill.StatusPending || it.status == outmill.StatusLeased {
		require.Equal(w.t, it.expiries, r.Expiries, "expiries of %s", it)
	}
	w.requireTime(it.due, r.DueAt, "due time of "+it.name)
	w.requireNext(it, r)
	if it.status == outmill.StatusLeased {
		w.requireTime(it.leaseUntil, r.LeaseUntil, "lease of "+it.name)
	} else {
		require.True(w.t, r.LeaseUntil.IsZero(), "lease of %s", it)
	}
	if it.mayExpire {
		w.requireTime(it.expires, r.ExpiresAt, "expiry of "+it.name)
	} else {
		require.True(w.t, r.ExpiresAt.IsZero(), "expiry of %s", it)
	}
}

func (w *walk) requireNext(it *item, r *outmill.Record) {
	w.t.Helper()
	behind := len(w.m.peers(it, outmill.OrderTopic)) > 0
	switch {
	case it.status != outmill.StatusPending:
		require.True(w.t, r.NextAttemptAt.IsZero(), "next attempt of %s", it)
	case behind && r.NextAttemptAt.IsZero():
	case it.next > w.m.now:
		w.requireTime(it.next, r.NextAttemptAt, "next attempt of "+it.name)
	default:
		require.False(w.t, r.NextAttemptAt.IsZero(), "next attempt of %s", it)
		require.True(w.t, r.NextAttemptAt.Before(w.base.Add(tick/2)), "next attempt of %s at %s", it, r.NextAttemptAt)
	}
}

func (w *walk) requireTime(want time.Duration, got time.Time, what string) {
	w.t.Helper()
	require.WithinDuration(w.t, w.base.Add(want-w.m.now), got, tick/2, what)
}

func (w *walk) checkStats(t *rapid.T) {
	type row struct {
		group string
		topic string
	}
	type counts struct{ pending, leased, processed, dead int }
	want, got := map[row]counts{}, map[row]counts{}
	for _, it := range w.m.items {
		c := want[row{it.group, it.topic}]
		switch it.status {
		case outmill.StatusPending:
			c.pending++
		case outmill.StatusLeased:
			c.leased++
		case outmill.StatusProcessed:
			c.processed++
		case outmill.StatusDead:
			c.dead++
		}
		want[row{it.group, it.topic}] = c
	}
	stats, err := w.store.Stats(w.ctx(), 0)
	w.no(err, "Stats")
	for _, s := range stats {
		if c := (counts{s.Pending, s.Leased, s.Processed, s.Dead}); c != (counts{}) {
			got[row{s.Group, s.Topic}] = c
		}
	}
	require.Equal(t, want, got, "pending, leased, processed, dead")
}
