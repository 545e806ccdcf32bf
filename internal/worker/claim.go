package worker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
)

// firstPoll is the wait after the first claim that found nothing; it doubles
// up to the poll interval.
const firstPoll = 10 * time.Millisecond

// gatherRecords is how long records may gather after a claim that brought few:
// a claim costs the database as much for one as for dozens.
const gatherRecords = 5 * time.Millisecond

// After quiet without a record or a wake-up, looks are half as frequent where
// the store wakes its readers.
const quiet = 10 * time.Second

func (w *Worker) claimLoop(ctx context.Context) {
	wake := w.wake(ctx)
	trouble := newPauses(100*time.Millisecond, w.cfg.MaxErrorBackoff)
	idle, busy := firstPoll, time.Now()
	for ctx.Err() == nil {
		order, ok := w.room()
		if !ok {
			if !w.wait(ctx, time.After(crowdPatience), w.roomSignal, nil) {
				w.relieve()
			}
			continue
		}
		found, err := w.claim(ctx, order)
		if found == order.request.Limit {
			signal(w.busySignal)
		}
		switch {
		case err != nil && ctx.Err() != nil:
		case found > 0:
			trouble.reset()
			idle, busy = firstPoll, time.Now()
			if err != nil {
				// One topic is in trouble, and others are not.
				w.log.Error("A claim ended early, what it has leased is handled", err, watermill.LogFields{"count": found})
				w.wait(ctx, time.After(firstPoll), nil, nil)
			} else if found < order.request.Limit/2 {
				w.wait(ctx, time.After(gatherRecords), w.poke, nil)
			}
		case err != nil:
			pause := trouble.next()
			w.log.Error("Claim failed, will try again", err, watermill.LogFields{"after": pause.String()})
			w.wait(ctx, time.After(pause), nil, nil)
		default:
			trouble.reset()
			longest := w.cfg.PollInterval
			if wake != nil && time.Since(busy) > quiet {
				longest *= 2
			}
			if idle = min(idle, longest); w.wait(ctx, time.After(idle), w.poke, wake) {
				idle, busy = firstPoll, time.Now()
			} else {
				idle *= 2
			}
		}
	}
}

// assistLoop claims beside claimLoop as long as there is more than one claim
// takes, so that the database works on one while the records of the other are
// read. Only claims without an order overlap: the records of a key would come
// in the wrong order. Its errors claimLoop meets too, and tells of.
func (w *Worker) assistLoop(ctx context.Context) {
	for w.wait(ctx, nil, w.busySignal, nil) {
		order, ok := w.room()
		if !ok {
			continue
		}
		found, err := w.claim(ctx, order)
		if err == nil && found == order.request.Limit {
			signal(w.busySignal)
		}
	}
}

func (w *Worker) wake(ctx context.Context) <-chan struct{} {
	if waker, ok := w.cfg.Queue.(outmill.Waker); ok {
		return waker.Wake(ctx)
	}
	return nil
}

// wait reports whether it was woken before the time was over.
func (w *Worker) wait(ctx context.Context, timeout <-chan time.Time, signals, wake <-chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case <-timeout:
		return false
	case <-signals:
		return true
	case <-wake:
		return true
	}
}

// order is a claim to be made.
type order struct {
	request outmill.ClaimRequest
	// wishes tells whether topics or limit were changed since.
	wishes int
	// fresh: nothing was in flight, and no other claim under way.
	fresh bool
	// number counts the claims.
	number int
}

// room says how much may be claimed. It waits for half a batch, so that claims
// do not become small when handlers finish one by one, and, for ordered
// claims, until what was given back is in the store: otherwise the store would
// take this owner for the holder of the key and hand out its later records.
func (w *Worker) room() (order, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ordered() && w.giveBacks > 0 || w.solo != nil {
		return order{}, false
	}
	most := w.cfg.MaxItems
	if w.limit < w.cfg.BatchSize {
		most = w.limit
	}
	free := most - len(w.items) - w.asked.items
	batch := min(w.limit, w.cfg.MaxItems)
	maxBytes := w.cfg.MaxBytes - w.bytes - w.asked.bytes
	if !w.ordered() {
		maxBytes = min(maxBytes, (w.cfg.MaxBytes+1)/2)
	}
	if free < 1 || free < (batch+1)/2 || maxBytes <= 0 {
		return order{}, false
	}
	clear(w.tainted)
	fresh := len(w.items) == 0 && w.asked.items == 0
	w.asked.items += min(free, batch)
	w.asked.bytes += maxBytes
	w.claims++
	return order{
		request: outmill.ClaimRequest{
			Owner:     w.owner,
			Group:     w.cfg.Group,
			Topics:    w.topics,
			Limit:     min(free, batch),
			MaxBytes:  maxBytes,
			Lease:     w.cfg.Lease,
			Order:     w.cfg.Order,
			KeyPolicy: w.cfg.KeyPolicy,
		},
		wishes: w.wishes,
		fresh:  fresh,
		number: w.claims,
	}, true
}

func (w *Worker) claim(ctx context.Context, o order) (int, error) {
	ctx, cancel := outlast(ctx)
	defer cancel()
	begin := time.Now()
	records, err := w.cfg.Queue.Claim(ctx, o.request)
	w.accept(o, records, begin)
	w.endRound(o, len(records) == 0, err)
	return len(records), err
}

// accept takes what was claimed into the worker's care. All of it happens under
// one lock, so that nobody can take an item that has to go back.
func (w *Worker) accept(o order, records []*outmill.Record, begin time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked.items -= o.request.Limit
	w.asked.bytes -= o.request.MaxBytes
	if len(records) == 0 {
		return
	}
	w.ready = slices.DeleteFunc(w.ready, func(it *Item) bool { return it.state != queued })
	for _, rec := range records {
		it := &Item{
			Record:    rec,
			worker:    w,
			lease:     rec.Lease(),
			key:       w.keyOf(rec),
			size:      rec.Size(),
			expiries:  rec.Expiries,
			claimedAt: begin,
			until:     begin.Add(w.cfg.Lease),
		}
		it.Clock = &it.ownClock
		it.Clock.Set(rec.LeaseUntil)
		// First, so that an outcome that is not stored yet has an heir.
		how, ended := w.inherit(it)
		if old := w.items[rec.ID]; old != nil {
			w.loseLocked(old, "it ended, and the record was claimed again")
		}
		w.items[rec.ID] = it
		w.bytes += it.size
		if ended {
			it.decided = true
			w.settleLocked(it, how)
			continue
		}
		w.admit(it, o.wishes != w.wishes)
	}
	signal(w.readySignal)
}

// admit queues the item, or settles it where it must not be handled.
func (w *Worker) admit(it *Item, wishesChanged bool) {
	rec := it.Record
	_, back := w.tainted[it.key]
	switch {
	case rec.Suspect() && w.cfg.Retry.Exhausted(rec.Attempts):
		w.settleLocked(it, outcome{kind: failed, reason: fmt.Sprintf("outmill: the lease expired %d times: the record may be killing its workers, or hanging them", rec.Expiries)})
	case w.overdue(it, time.Now()):
		// It was given up for this handling, which still goes on: others may be able
		// to handle it.
		w.settleLocked(it, outcome{kind: snoozed, delay: w.cfg.Lease})
	case it.heir:
		w.enqueueKey(it)
	case back, wishesChanged && w.unwanted(it):
		w.settleLocked(it, outcome{kind: released})
	default:
		w.enqueue(it)
	}
}

func (w *Worker) enqueue(it *Item) {
	if it.Record.Suspect() {
		w.solo = it
	}
	if first := w.enqueueKey(it); first || w.cfg.Pipelined {
		w.ready = append(w.ready, it)
	}
}

// inherit makes the item the heir of the handling of its record, if that began
// under a lost lease and is still under way, or its outcome is not stored yet:
// then it returns the outcome.
func (w *Worker) inherit(it *Item) (how outcome, ended bool) {
	h, how, ended := w.cfg.Running.inherit(it)
	if h != nil {
		it.handling, it.heir = h, true
		it.state, it.startedAt = taken, h.startedAt
	}
	return how, ended
}

// unwanted is for items that were claimed before the topics or the limit were
// changed.
func (w *Worker) unwanted(it *Item) bool {
	tooMany := w.limit < w.cfg.BatchSize && len(w.items) > w.limit
	return tooMany || !w.topics.Match(it.Record.Topic)
}

// endRound takes note of a finished claim. After one that failed, nobody knows
// whether the store carried it out: then this owner may hold records of keys
// that it knows nothing of, and a store hands a key's later records to its
// holder. A new owner is not the holder. A claim that found nothing while
// another one was under way says nothing: that one may have had all there was.
func (w *Worker) endRound(o order, empty bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil && w.ordered() {
		w.owner = outmill.NewOwnerToken()
	}
	w.rounds++
	w.lastEmpty, w.lastErr = empty && err == nil && o.fresh && o.number == w.claims, err
	close(w.roundDone)
	w.roundDone = make(chan struct{})
}
