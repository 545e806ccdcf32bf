package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/cenkalti/backoff/v4"

	"github.com/outmill/outmill"
)

// firstPoll is the wait after the first claim that found nothing; it doubles
// up to the poll interval.
const firstPoll = 10 * time.Millisecond

func (w *Worker) claimLoop(ctx context.Context) {
	wake := w.wake(ctx)
	trouble := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(100*time.Millisecond),
		backoff.WithMaxInterval(w.cfg.MaxErrorBackoff),
		backoff.WithMaxElapsedTime(0),
	)
	idle := firstPoll
	for ctx.Err() == nil {
		req, ok := w.room()
		if !ok {
			w.wait(ctx, nil, w.roomSignal, nil)
			continue
		}
		found, err := w.claim(ctx, req)
		switch {
		case err != nil && ctx.Err() != nil:
		case err != nil:
			pause := trouble.NextBackOff()
			w.log.Error("Claim failed, will try again", err, watermill.LogFields{"after": pause.String()})
			w.wait(ctx, time.After(pause), nil, nil)
		case found > 0:
			trouble.Reset()
			idle = firstPoll
		default:
			trouble.Reset()
			if w.wait(ctx, time.After(min(idle, w.cfg.PollInterval)), w.poke, wake) {
				idle = firstPoll
			} else {
				idle = min(2*idle, w.cfg.PollInterval)
			}
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

// room says how much may be claimed. It waits for half a batch, so that claims
// do not become small when handlers finish one by one, and, for ordered
// claims, until what was given back is in the store: otherwise the store would
// take this owner for the holder of the key and hand out its later records.
func (w *Worker) room() (outmill.ClaimRequest, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ordered() && w.giveBacks > 0 || w.solo != nil {
		return outmill.ClaimRequest{}, false
	}
	free := w.cfg.MaxItems - len(w.items)
	if w.limit < w.cfg.BatchSize {
		free = w.limit - len(w.items)
	}
	batch := min(w.limit, w.cfg.MaxItems)
	maxBytes := w.cfg.MaxBytes - w.bytes
	if free < 1 || free < (batch+1)/2 || maxBytes <= 0 {
		return outmill.ClaimRequest{}, false
	}
	clear(w.tainted)
	return outmill.ClaimRequest{
		Owner:     w.owner,
		Group:     w.cfg.Group,
		Topics:    w.topics,
		Limit:     min(free, batch),
		MaxBytes:  maxBytes,
		Lease:     w.cfg.Lease,
		Order:     w.cfg.Order,
		KeyPolicy: w.cfg.KeyPolicy,
	}, true
}

func (w *Worker) ordered() bool { return w.cfg.Order != outmill.OrderNone }

// claim is not cut short by a shutdown: a claim that the store carried out but
// that nobody heard of would hold its records until the lease ends.
func (w *Worker) claim(ctx context.Context, req outmill.ClaimRequest) (int, error) {
	storeCtx, cancel := detached(ctx)
	defer cancel()
	idleBefore := w.idle()
	begin := time.Now()
	records, err := w.cfg.Queue.Claim(storeCtx, req)
	if err != nil {
		w.endRound(false, err)
		return 0, err
	}
	if len(records) > 0 {
		w.log.Debug("Claimed records", watermill.LogFields{"count": len(records)})
	}
	w.accept(records, begin)
	w.endRound(idleBefore && len(records) == 0, nil)
	return len(records), nil
}

// accept takes what was claimed into the worker's care. All of it happens under
// one lock, so that nobody can take an item that has to go back.
func (w *Worker) accept(records []*outmill.Record, begin time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, rec := range records {
		it := &Item{
			Record:    rec,
			Clock:     &outmill.LeaseClock{},
			worker:    w,
			key:       w.keyOf(rec),
			lost:      make(chan struct{}),
			claimedAt: begin,
			until:     begin.Add(w.cfg.Lease),
		}
		it.Clock.Set(rec.LeaseUntil)
		w.items[rec.ID] = it
		w.bytes += rec.Size()
		w.admit(it)
	}
	signal(w.readySignal)
	signal(w.settleSignal)
}

// admit queues the item, or settles it where it must not be handled.
func (w *Worker) admit(it *Item) {
	rec := it.Record
	if !w.cfg.Running.enter(rec.ID) {
		// The handling that began under a lost lease is still under way.
		w.settleLocked(it, outcome{kind: snoozed, delay: w.cfg.Lease, foreign: true})
		return
	}
	if rec.Suspect() {
		if w.cfg.Retry.Exhausted(rec.Attempts) {
			w.settleLocked(it, outcome{kind: failed, reason: fmt.Sprintf("outmill: the lease expired %d times: the record may be killing its workers", rec.Expiries)})
			return
		}
		w.solo = it
	}
	if it.key != "" {
		if _, back := w.tainted[it.key]; back {
			w.settleLocked(it, outcome{kind: released})
			return
		}
		w.keys[it.key] = append(w.keys[it.key], it)
		if len(w.keys[it.key]) > 1 && !w.cfg.Pipelined {
			return
		}
	}
	w.ready = append(w.ready, it)
}

// keyOf is what the item's order hangs on; "" is nothing.
func (w *Worker) keyOf(rec *outmill.Record) string {
	switch {
	case w.cfg.Order == outmill.OrderTopic:
		return rec.Topic
	case w.cfg.Order == outmill.OrderKey && rec.Key != "":
		return rec.Topic + "\x00" + rec.Key
	}
	return ""
}

func (w *Worker) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.items) == 0
}

func (w *Worker) endRound(empty bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rounds++
	w.lastEmpty, w.lastErr = empty, err
	close(w.roundDone)
	w.roundDone = make(chan struct{})
}

// Drain returns when a claim that began after the call, while nothing was in
// flight, has found nothing: all that was due has been settled. It returns the
// error of a claim that fails meanwhile, and ErrClosed if the worker stops.
func (w *Worker) Drain(ctx context.Context) error {
	w.mu.Lock()
	// A claim may be under way that began before the call.
	target := w.rounds + 2
	w.mu.Unlock()
	for {
		w.Poke()
		w.mu.Lock()
		current, empty, err := w.rounds >= target, w.lastEmpty, w.lastErr
		next := w.roundDone
		w.mu.Unlock()
		if current && (empty || err != nil) {
			return err
		}
		select {
		case <-next:
		case <-w.stopped:
			return outmill.ErrClosed
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(firstPoll):
		}
	}
}
