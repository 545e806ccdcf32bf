package suite

import (
	"bytes"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
)

// check compares all that can be seen of the store with the model.
func (w *Walk) check(*rapid.T) {
	listed := ListAll(w.Ctx(), w.T, w.Store, outmill.ListQuery{})
	require.Len(w.T, listed, len(w.Queue.Items), "records\nstore: %q\nmodel:\n%s", Names(listed), &w.Queue)
	last := outmill.WorkItemID{}
	for _, r := range listed {
		it := w.Queue.find(r.ID)
		require.NotNil(w.T, it, "%s is in the store, but not in the model", r.MessageID)
		w.requireSame(it, r)
		require.Negative(w.T, bytes.Compare(last[:], r.ID[:]), "List is not in the order of the ids: %q", Names(listed))
		last = r.ID
	}
	// Statistics cost more than anything else.
	if w.steps++; w.steps%4 == 0 {
		w.checkStats()
	}
}

func (w *Walk) requireSame(it *Item, r *outmill.Record) {
	w.T.Helper()
	type visible struct {
		Name, Group, Topic, Key string
		Status                  outmill.Status
		Attempts, Claims        int
		Owner                   outmill.OwnerToken
		ProcessedBy             string
	}
	require.Equal(w.T,
		visible{it.Name, it.Group, it.topic, it.key, it.Status, it.Attempts, it.claims, it.owner, it.processor},
		visible{r.MessageID, r.Group, r.Topic, r.Key, r.Status, r.Attempts, r.Claims, r.Owner, r.ProcessedBy},
		"model, store: %s", it)
	if it.Status == outmill.StatusPending || it.Status == outmill.StatusLeased {
		require.Equal(w.T, it.Expiries, r.Expiries, "expiries of %s", it)
	}
	w.RequireTime(it.due, r.DueAt, "due time of "+it.Name)
	w.requireNext(it, r)
	if it.Status == outmill.StatusLeased {
		w.RequireTime(it.leaseUntil, r.LeaseUntil, "lease of "+it.Name)
	} else {
		require.True(w.T, r.LeaseUntil.IsZero(), "lease of %s", it)
	}
	if it.mayExpire {
		w.RequireTime(it.expires, r.ExpiresAt, "expiry of "+it.Name)
	} else {
		require.True(w.T, r.ExpiresAt.IsZero(), "expiry of %s", it)
	}
}

func (w *Walk) requireNext(it *Item, r *outmill.Record) {
	w.T.Helper()
	behind := len(w.Queue.peers(it, outmill.OrderTopic)) > 0
	switch {
	case it.Status != outmill.StatusPending:
		require.True(w.T, r.NextAttemptAt.IsZero(), "next attempt of %s", it)
	case (behind || w.Queue.hasPaused) && r.NextAttemptAt.IsZero():
	case it.Next > w.Queue.Now:
		w.RequireTime(it.Next, r.NextAttemptAt, "next attempt of "+it.Name)
	default:
		require.False(w.T, r.NextAttemptAt.IsZero(), "next attempt of %s", it)
		require.True(w.T, r.NextAttemptAt.Before(w.base.Add(Tick/2)), "next attempt of %s at %s", it, r.NextAttemptAt)
	}
}

// RequireTime checks a time that the model knows.
func (w *Walk) RequireTime(want time.Duration, got time.Time, what string) {
	w.T.Helper()
	require.WithinDuration(w.T, w.base.Add(want-w.Queue.Now), got, Tick/2, what)
}

func (w *Walk) checkStats() {
	type row struct {
		group string
		topic string
	}
	type counts struct{ pending, delayed, leased, processed, dead int }
	want, got := map[row]counts{}, map[row]counts{}
	for _, it := range w.Queue.Items {
		c := want[row{it.Group, it.topic}]
		switch {
		case it.Status == outmill.StatusPending && it.Next > w.Queue.Now:
			c.pending++
			c.delayed++
		case it.Status == outmill.StatusPending, w.Queue.leaseEnded(it):
			c.pending++
		case it.Status == outmill.StatusLeased:
			c.leased++
		case it.Status == outmill.StatusProcessed:
			c.processed++
		case it.Status == outmill.StatusDead:
			c.dead++
		}
		want[row{it.Group, it.topic}] = c
	}
	stats, err := w.Store.Stats(w.Ctx(), 0)
	w.NoError(err, "Stats")
	for _, s := range stats {
		if c := (counts{s.Pending, s.Delayed, s.Leased, s.Processed, s.Dead}); c != (counts{}) {
			got[row{s.Group, s.Topic}] = c
		}
	}
	require.Equal(w.T, want, got, "pending, delayed, leased, processed, dead: an ended lease is due")
}
