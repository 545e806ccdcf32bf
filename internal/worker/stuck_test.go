package worker_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
)

// refusing is a store that refuses every settling call that includes the lease of one
// record.
type refusing struct {
	*faulty
	refused atomic.Pointer[outmill.WorkItemID]
	// calls counts the refused calls.
	calls atomic.Int64
}

var errRefused = errors.New("a column is too small for this record")

func (f *refusing) refuses(leases []outmill.Lease) error {
	id := f.refused.Load()
	if id != nil && slices.ContainsFunc(leases, func(l outmill.Lease) bool { return l.ID == *id }) {
		f.calls.Add(1)
		return errRefused
	}
	return nil
}

func leasesIn[T any](list []T, lease func(T) outmill.Lease) []outmill.Lease {
	leases := make([]outmill.Lease, len(list))
	for i := range list {
		leases[i] = lease(list[i])
	}
	return leases
}

func (f *refusing) Ack(ctx context.Context, by string, leases []outmill.Lease) error {
	if err := f.refuses(leases); err != nil {
		return err
	}
	return f.faulty.Ack(ctx, by, leases)
}

func (f *refusing) Abandon(ctx context.Context, list []outmill.Settlement) error {
	if err := f.refuses(leasesIn(list, func(a outmill.Settlement) outmill.Lease { return a.Lease })); err != nil {
		return err
	}
	return f.faulty.Abandon(ctx, list)
}

func (f *refusing) Fail(ctx context.Context, list []outmill.Settlement) error {
	if err := f.refuses(leasesIn(list, func(a outmill.Settlement) outmill.Lease { return a.Lease })); err != nil {
		return err
	}
	return f.faulty.Fail(ctx, list)
}

func (f *refusing) Snooze(ctx context.Context, list []outmill.Settlement) error {
	if err := f.refuses(leasesIn(list, func(a outmill.Settlement) outmill.Lease { return a.Lease })); err != nil {
		return err
	}
	return f.faulty.Snooze(ctx, list)
}

func (f *refusing) Release(ctx context.Context, leases []outmill.Lease) error {
	if err := f.refuses(leases); err != nil {
		return err
	}
	return f.faulty.Release(ctx, leases)
}

// startRefusing runs a worker with a store that refuses the record's outcome.
func (r *rig) startRefusing(rec *outmill.Record, change func(*worker.Config)) (*worker.Worker, *refusing) {
	r.Helper()
	queue := &refusing{faulty: r.store}
	queue.refused.Store(&rec.ID)
	// The outcome must be stored before the worker is closed, because Close waits for
	// outcomes.
	w := r.start(func(c *worker.Config) {
		c.Queue = queue
		if change != nil {
			change(c)
		}
	})
	r.Cleanup(func() { queue.refused.Store(nil) })
	return w, queue
}

func TestStuck(t *testing.T) {
	t.Parallel()

	t.Run("one outcome that the store refuses keeps no other from being stored", func(t *testing.T) {
		t.Parallel()
		for call, settle := range map[string]func(*worker.Item){
			"Ack":     (*worker.Item).Ack,
			"Abandon": func(it *worker.Item) { it.Abandon(never, "no luck") },
			"Fail":    func(it *worker.Item) { it.Fail("no good") },
			"Snooze":  func(it *worker.Item) { it.Snooze(never) },
			"Release": (*worker.Item).Release,
		} {
			t.Run(call, func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				records := r.append(words(10)...)
				refused := records[6]
				w, queue := r.startRefusing(refused, func(c *worker.Config) { c.FlushInterval = soon })
				items := r.takeN(w, len(records))
				// The worker must not claim the records again.
				w.SetLimit(0)
				for _, it := range items {
					settle(it)
				}
				for _, rec := range records {
					if rec == refused {
						continue
					}
					r.eventually(fmt.Sprintf("%s of %s is stored", call, rec.MessageID), func() bool {
						got := r.get(rec)
						return got == nil || got.Status != outmill.StatusLeased
					})
				}
				require.Equal(t, outmill.StatusLeased, r.get(refused).Status)
				queue.refused.Store(nil)
				r.eventually("the last one is stored", func() bool {
					got := r.get(refused)
					return got == nil || got.Status != outmill.StatusLeased
				})
			})
		}
	})

	t.Run("acks are stored next to one that the store refuses", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		bad := r.append("bad")[0]
		w, queue := r.startRefusing(bad, nil)
		r.take(w).Ack()
		r.eventually("it is tried again", func() bool { return queue.calls.Load() > 2 })
		for i := range 3 {
			records := r.append(words(3)...)
			for range records {
				r.take(w).Ack()
			}
			r.eventuallyGone(records...)
			require.NotNil(t, r.get(bad), "round %d", i)
		}
	})

	t.Run("an outcome that the store keeps refusing is dropped and its record is due again", func(t *testing.T) {
		t.Parallel()
		for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey} {
			t.Run(order.String(), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				bad := r.append("k:bad")[0]
				w, queue := r.startRefusing(bad, func(c *worker.Config) {
					c.Order, c.MaxItems, c.Lease = order, 30, soon/10
				})
				others := r.append(words(20)...)
				items := r.takeN(w, 1+len(others))
				later := r.append("k:later")[0]
				at := slices.IndexFunc(items, func(it *worker.Item) bool { return it.Record.MessageID == "k:bad" })
				items[at].Abandon(0, "no luck")
				// The store answers an ack, and refuses again.
				for _, it := range slices.Delete(items, at, at+1) {
					calls := queue.calls.Load()
					it.Ack()
					r.eventually("it is refused again, or dropped", func() bool {
						return queue.calls.Load() > calls+1 || r.get(bad).Claims > 1
					})
				}
				r.eventually("it comes again", func() bool { return r.get(bad).Claims > 1 })
				queue.refused.Store(nil)
				// No record of its key has come in between.
				if order == outmill.OrderKey {
					r.handlesInOrder(w, "k:bad", "k:later")
				} else {
					for range 2 {
						r.take(w).Ack()
					}
				}
				r.eventuallyGone(bad, later)
			})
		}
	})
}
