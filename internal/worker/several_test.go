package worker_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
	"github.com/outmill/outmill/storekit"
)

// several is one store that looks like several: a record is of the store that its message
// id begins with. One of them may be away.
type several struct {
	*faulty

	mu   sync.Mutex
	away string
	// extended and acked count the leases by their store.
	extended, acked map[string]int
	storeOf         map[outmill.WorkItemID]string
}

func newSeveral(f *faulty) *several {
	return &several{faulty: f, extended: map[string]int{}, acked: map[string]int{}, storeOf: map[outmill.WorkItemID]string{}}
}

func (s *several) setAway(store string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = store
}

func (s *several) count(counts map[string]int, store string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return counts[store]
}

func (s *several) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	records, err := s.faulty.Claim(ctx, req)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range records {
		r.Store, _, _ = strings.Cut(r.MessageID, "/")
		s.storeOf[r.ID] = r.Store
	}
	return records, err
}

// split leaves out the leases of the store that is away.
func (s *several) split(leases []outmill.Lease, counts map[string]int) ([]outmill.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	failed := storekit.PartialError{Failed: map[string]error{}}
	var here []outmill.Lease
	for _, l := range leases {
		if l.Store == s.away {
			failed.Failed[l.Store] = errAway
			continue
		}
		counts[l.Store]++
		l.Store = ""
		here = append(here, l)
	}
	return here, failed.OrNil()
}

func (s *several) Extend(ctx context.Context, lease time.Duration, leases []outmill.Lease) ([]outmill.Lease, error) {
	here, partial := s.split(leases, s.extended)
	standing, err := s.faulty.Extend(ctx, lease, here)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range standing {
		standing[i].Store = s.storeOf[standing[i].ID]
	}
	return standing, partial
}

func (s *several) Ack(ctx context.Context, by string, leases []outmill.Lease) error {
	here, partial := s.split(leases, s.acked)
	if err := s.faulty.Ack(ctx, by, here); err != nil {
		return err
	}
	return partial
}

func TestWorker_Several(t *testing.T) {
	t.Parallel()

	t.Run("the order of a key is that of one store", func(t *testing.T) {
		t.Parallel()
		for _, order := range []outmill.Order{outmill.OrderKey, outmill.OrderTopic} {
			r := newRig(t)
			s := newSeveral(r.store)
			require.NoError(t, r.store.Append(t.Context(),
				&outmill.Record{MessageID: "a/1", Topic: topic, Key: "k"}, &outmill.Record{MessageID: "a/2", Topic: topic, Key: "k"},
				&outmill.Record{MessageID: "b/1", Topic: topic, Key: "k"}))
			w := r.start(func(c *worker.Config) { c.Queue, c.Order = s, order })
			items := r.takeN(w, 2)
			require.ElementsMatch(t, []string{"a/1", "b/1"}, names(items), "order %s", order)
			require.NotEqual(t, items[0].Key(), items[1].Key())
			r.takesNothing(w)
			for _, it := range items {
				it.Ack()
			}
			r.handlesInOrder(w, "a/2")
		}
	})

	t.Run("an ack is stored although that of another store fails, which comes later", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		s := newSeveral(r.store)
		records := r.append("a/1", "b/1", "a/2")
		s.setAway("b")
		// The worker drops an outcome that has failed ten times alone. With the rig's short waits a
		// busy machine would come that far before the member is back.
		w := r.start(func(c *worker.Config) {
			c.Queue, c.FlushInterval, c.MaxErrorBackoff = s, 20*time.Millisecond, 2*time.Second
		})
		for _, it := range r.takeN(w, 3) {
			it.Ack()
		}
		r.eventuallyGone(records[0], records[2])
		require.NotNil(t, r.get(records[1]))
		// The store deletes a record before the worker counts it.
		r.eventually("both are counted", func() bool { return w.Settled() == 2 })
		s.setAway("")
		r.eventuallyGone(records[1])
		r.eventually("all are counted", func() bool { return w.Settled() == 3 })
		require.Equal(t, 2, s.count(s.acked, "a"), "no ack is stored twice")
	})

	t.Run("a lease is extended although that of another store is not", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		s := newSeveral(r.store)
		r.append("a/1", "b/1")
		w := r.start(func(c *worker.Config) { c.Queue, c.Lease = s, 3*time.Second })
		items := map[string]*worker.Item{}
		for _, it := range r.takeN(w, 2) {
			items[it.Record.MessageID] = it
		}
		s.setAway("b")
		select {
		case <-items["b/1"].Lost():
		case <-time.After(soon):
			require.FailNow(t, "the lease in the store that is away still stands")
		}
		before := s.count(s.extended, "a")
		r.eventually("the other is extended", func() bool { return s.count(s.extended, "a") >= before+3 })
		require.Positive(t, items["a/1"].Left())
		s.setAway("")
		for _, it := range items {
			it.Ack()
		}
	})
}
