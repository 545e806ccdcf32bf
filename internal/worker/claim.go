package worker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// firstPoll is the wait after the first claim that found nothing; it doubles
// up to the poll interval.
const firstPoll = 10 * time.Millisecond

// gatherRecords is how long records may gather after a claim that brought few:
// a claim costs the database as much for one as for dozens.
const gatherRecords = 5 * time.Millisecond

func (w *Worker) claimLoop(ctx context.Context) {
	if waker, ok := outmill.As[storekit.Waker](w.cfg.Queue); ok {
		waker.Wake(ctx, w.woken.add)
	}
	trouble := storekit.NewWaits(100*time.Millisecond, w.cfg.MaxErrorBackoff)
	for ctx.Err() == nil {
		now := time.Now()
		w.relieve(now)
		o, next := w.room(now)
		if o.feeds == nil {
			w.await(ctx, next)
			continue
		}
		found, err := w.claim(ctx, o)
		if found == o.request.Limit {
			signal(w.busySignal)
		}
		switch {
		case err == nil:
			trouble.Reset()
		case ctx.Err() != nil:
		case found > 0:
			// One topic is in trouble, and others are not.
			trouble.Reset()
			w.faults.Fault("A claim ended early, what it has leased is handled", err, watermill.LogFields{"count": found})
			w.wait(ctx, time.After(firstPoll), nil, nil, nil)
		default:
			pause := trouble.Next()
			w.faults.Fault("Claim failed, will try again", err, watermill.LogFields{"after": pause.String()})
			w.wait(ctx, time.After(pause), nil, nil, nil)
		}
	}
}

// await waits until a feed may be due, or has room.
func (w *Worker) await(ctx context.Context, next time.Time) {
	woken := w.woken.signal
	if next.IsZero() {
		// Feeds that are full stay due.
		woken, next = nil, time.Now().Add(crowdPatience)
	}
	timer := time.NewTimer(min(time.Until(next), crowdPatience))
	defer timer.Stop()
	w.wait(ctx, timer.C, w.poke, w.roomSignal, woken)
}

// assistLoop claims at the same time as claimLoop, as long as there is more than one claim
// takes, so that the database works on one while the records of the other are
// read. Only claims without an order overlap: the records of a key would come
// in the wrong order. Its errors claimLoop meets too, and tells of.
func (w *Worker) assistLoop(ctx context.Context) {
	for w.wait(ctx, nil, w.busySignal, nil, nil) {
		o, _ := w.room(time.Now())
		if o.feeds == nil {
			continue
		}
		found, err := w.claim(ctx, o)
		if err == nil && found == o.request.Limit {
			signal(w.busySignal)
		}
	}
}

// wait reports whether a signal came before the time was over.
func (w *Worker) wait(ctx context.Context, timeout <-chan time.Time, one, other, another <-chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case <-timeout:
		return false
	case <-one:
	case <-other:
	case <-another:
	}
	return true
}

func (w *Worker) claim(ctx context.Context, o order) (int, error) {
	ctx, cancel := outlast(ctx)
	defer cancel()
	begin := time.Now()
	records, err := w.cfg.Queue.Claim(ctx, o.request)
	got := w.accept(o, records, begin, w.holdAhead(ctx, records))
	w.endRound(o, got, err)
	return len(records), err
}

// catch is what a claim brought.
type catch struct {
	load
	suspect bool
}

// accept takes what was claimed into the worker's care. All of it happens under
// one lock, so that nobody can take an item that has to go back.
func (w *Worker) accept(o order, records []*outmill.Record, begin time.Time, held map[outmill.Lease]bool) catch {
	w.mu.Lock()
	defer w.mu.Unlock()
	got := catch{load: load{items: len(records)}}
	for _, f := range o.feeds {
		f.asked.items -= o.request.Limit
		f.asked.bytes -= o.request.MaxBytes
		if len(records) > 0 {
			f.ready = slices.DeleteFunc(f.ready, func(it *Item) bool { return it.state != queued })
		}
	}
	for _, rec := range records {
		it := &Item{
			Record:    rec,
			worker:    w,
			feed:      w.feedOf(rec.Topic),
			lease:     rec.Lease(),
			key:       w.keyOf(rec),
			size:      rec.Size(),
			expiries:  rec.Expiries,
			claimedAt: begin,
			until:     begin.Add(w.cfg.Lease),
			held:      held[rec.Lease()],
		}
		it.Clock = &it.ownClock
		it.Clock.Set(rec.LeaseUntil)
		// First, so that an outcome that is not stored yet has an heir.
		how, ended, before := w.inherit(it)
		if old := w.items[rec.ID]; old != nil {
			w.loseLocked(old, "it ended, and the record was claimed again")
		}
		if before != nil && before.worker == w {
			before.feed.freed(before)
		}
		w.items[rec.ID] = it
		got.bytes += it.size
		got.suspect = got.suspect || rec.Suspect()
		it.feed.brought = o.number
		it.feed.held.items++
		it.feed.held.bytes += it.size
		if ended {
			it.decided = true
			w.settleLocked(it, how)
			continue
		}
		w.admit(it, o.wishes != w.wishes)
	}
	return got
}

// feedOf returns the feed of a record's topic; one that nobody reads where the
// topic was closed in the meantime.
func (w *Worker) feedOf(topic string) *Feed {
	if !w.cfg.ByTopic {
		topic = ""
	}
	if f := w.feeds[topic]; f != nil {
		return f
	}
	return w.newFeed(topic, "")
}

// admit queues the item, or settles it where it must not be handled.
func (w *Worker) admit(it *Item, wishesChanged bool) {
	rec := it.Record
	_, back := w.tainted[it.key]
	switch {
	case rec.Suspect() && w.cfg.Retry.Exhausted(rec.Attempts):
		w.settleLocked(it, outcome{kind: failed,
			reason: fmt.Sprintf("outmill: the lease expired %d times: the record may be killing its workers, or hanging them", rec.Expiries)})
	case w.overdue(it, time.Now()):
		// It was given up for this handling, which still goes on: others may be able
		// to handle it.
		w.settleLocked(it, outcome{kind: snoozed, delay: w.cfg.Lease})
	case it.heir:
		w.enqueueKey(it)
	case back, wishesChanged && w.unwanted(it):
		w.settleLocked(it, outcome{kind: released})
	case rec.Suspect() && it.feed.solo != nil:
		// Two claims that were under way together have met one each.
		w.settleLocked(it, outcome{kind: released})
	default:
		w.enqueue(it)
	}
}

func (w *Worker) enqueue(it *Item) {
	if it.Record.Suspect() {
		it.feed.solo = it
	}
	if first := w.enqueueKey(it); first || w.cfg.Pipelined {
		it.feed.ready = append(it.feed.ready, it)
		signal(it.feed.readySignal)
	}
}

// inherit makes the item the heir of the handling of its record, if that began
// under a lost lease and is still under way, or its outcome is not stored yet:
// then it returns the outcome. before is the item that had it.
func (w *Worker) inherit(it *Item) (how outcome, ended bool, before *Item) {
	h, before, how, ended := w.cfg.Running.inherit(it)
	if h != nil {
		it.handling, it.heir = h, true
		it.state, it.startedAt = taken, h.startedAt
	}
	return how, ended, before
}

// unwanted is for items that were claimed before the topics or the limit were
// changed.
func (w *Worker) unwanted(it *Item) bool {
	if w.cfg.ByTopic {
		return it.feed.opened == 0
	}
	tooMany := w.limit < w.cfg.BatchSize && len(w.items) > w.limit
	return tooMany || !w.topics.Match(it.Record.Topic)
}

// endRound takes note of a finished claim. After one that failed, nobody knows
// whether the store carried it out: then this owner may hold records of keys
// that it knows nothing of, and a store hands a key's later records to its
// holder. A new owner is not the holder. A claim that found nothing while
// another one was under way says nothing: that one may have had all there was.
func (w *Worker) endRound(o order, got catch, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil && w.ordered() {
		w.owner = outmill.NewOwnerToken()
	}
	w.claiming--
	w.scheduleNext(o, got, err)
	w.rounds++
	w.lastEmpty, w.lastErr = got.items == 0 && err == nil && o.whole && o.number == w.claims, err
	close(w.roundDone)
	w.roundDone = make(chan struct{})
}

// scheduleNext says when the feeds of a claim are due again: at once where there
// may be more, after a growing wait where the claim found nothing.
func (w *Worker) scheduleNext(o order, got catch, err error) {
	now := time.Now()
	// The claim may have ended before it came to all feeds.
	cut := err != nil || got.suspect || got.items == o.request.Limit || got.bytes > o.request.MaxBytes/2
	few := !cut && got.items > 0 && got.items < o.request.Limit/2
	for _, f := range o.feeds {
		if cut || f.brought == o.number {
			f.look.soon(now)
		} else {
			f.look.foundNothing(now, w.cfg.PollInterval)
		}
		if f.look.notBefore = (time.Time{}); few {
			f.look.notBefore = now.Add(gatherRecords)
		}
	}
}
