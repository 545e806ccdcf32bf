package worker

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// firstPoll is the wait after the first claim that found nothing; it doubles
// up to the poll interval.
const firstPoll = 10 * time.Millisecond

// gatherRecords is the pause after a claim that returned few records, so that more become
// due, because a claim of one record costs the database as much as a claim of dozens. While the
// user of a pipelined worker is busy with what it took, the pause lasts until it takes again.
const gatherRecords = 5 * time.Millisecond

func (w *Worker) claimLoop(ctx context.Context) {
	if waker, ok := outmill.As[roles.Waker](w.cfg.Queue); ok {
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
			// The claim failed for one topic, but not for others.
			trouble.Reset()
			w.faults.Fault("A claim ended early; the worker handles the records that it has leased", err, watermill.LogFields{"count": found})
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
		// Full feeds stay due, so a wake-up has no effect.
		woken, next = nil, time.Now().Add(crowdPatience)
	}
	timer := time.NewTimer(min(time.Until(next), crowdPatience))
	defer timer.Stop()
	w.wait(ctx, timer.C, w.poke, w.roomSignal, woken)
}

// assistLoop claims concurrently with claimLoop while more records are due than one claim
// takes, so that the database works on one claim while this process reads the records of
// the other. Only unordered claims may overlap, because overlapping claims would return the
// records of a key in the wrong order. assistLoop reports no errors: claimLoop gets the
// same errors and reports them.
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

// wait reports whether a signal came before the timeout.
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
	claim, cancel := outlast(ctx)
	defer cancel()
	begin := time.Now()
	claim, notes := storekit.WithClaimNotes(claim)
	records, err := w.claimRaw(claim, o.request)
	w.failing.Note(ctx, storekit.CallClaim, "", begin, err)
	got := w.accept(o, records, func(l outmill.Lease) time.Time { return notes.Began(l, begin) })
	o.whole = o.whole && !notes.Unanswered()
	w.endRound(o, got, err)
	return len(records), err
}

// catch describes the records of a claim.
type catch struct {
	load
	suspect bool
	// tried says that the lease of one of them has ended before.
	tried bool
}

// cutByBytes reports whether the bytes, and not what is due, may have ended the claim.
func (o order) cutByBytes(got catch) bool { return got.bytes > o.request.MaxBytes/2 }

// accept makes a batch of the claimed records, or items. It holds the lock throughout, so that no
// caller can take an item that must be released.
func (w *Worker) accept(o order, records []roles.RawRecord, began func(outmill.Lease) time.Time) catch {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heedPausesLocked()
	got := catch{load: load{items: len(records)}, tried: tried(records)}
	giveBack := got.tried && o.request.Limit > w.cfg.BatchSize
	for _, f := range o.feeds {
		f.asked.items -= o.request.Limit
		f.asked.bytes -= o.request.MaxBytes
		if len(records) > 0 {
			f.ready = slices.DeleteFunc(f.ready, func(it *Item) bool { return it.state != queued })
		}
	}
	if b := w.batchOf(o, records, got.tried, began); b != nil {
		w.admitBatch(b, o.number)
		got.bytes = b.bytes
		return got
	}
	if len(records) > 0 {
		w.breakUp()
	}
	for _, raw := range records {
		rec := raw.Record
		it := w.newItem(raw, began(rec.Lease()))
		// This must come first, so that an outcome that is not stored yet goes to the new lease.
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
		it.feed.tenantHeld(it)
		if ended {
			it.decided = true
			w.settleLocked(it, how)
			continue
		}
		w.admit(it, o.changes != w.changes, giveBack)
	}
	return got
}

// newItem makes the item of a record.
func (w *Worker) newItem(raw roles.RawRecord, began time.Time) *Item {
	rec := raw.Record
	it := &Item{
		Record:    rec,
		entries:   raw.Entries,
		worker:    w,
		feed:      w.feedOf(rec.Topic),
		lease:     rec.Lease(),
		key:       w.keyOf(rec),
		size:      raw.Size(),
		expiries:  rec.Expiries,
		claimedAt: began,
		until:     began.Add(w.cfg.Lease),
	}
	it.Clock = &it.ownClock
	it.Clock.Set(rec.LeaseUntil)
	return it
}

// feedOf returns the feed of a record's topic. If the topic was closed during the claim, it
// returns a new feed without readers.
func (w *Worker) feedOf(topic string) *Feed {
	if !w.cfg.ByTopic {
		topic = ""
	}
	if f := w.feeds[topic]; f != nil {
		return f
	}
	return w.newFeed(topic, "")
}

// admit queues the item, or settles it if it must not be handled. A claim that is given back was too large: see
// growth.
func (w *Worker) admit(it *Item, changed, giveBack bool) {
	rec := it.Record
	_, back := w.tainted[it.key]
	switch {
	case rec.Suspect() && w.cfg.Retry.Exhausted(rec.Attempts):
		w.settleLocked(it, outcome{kind: failed, unhandled: true,
			reason: storekit.SuspectError(rec.Expiries)})
	case w.overdue(it, time.Now()):
		// This process still handles the record and has given it up once. Another process may be
		// able to handle it.
		w.settleLocked(it, outcome{kind: snoozed, delay: w.leftToOthers()})
	case it.successor:
		w.enqueueKey(it)
	case back, giveBack, changed && w.unwanted(it), w.paused.Covers(rec):
		w.settleLocked(it, outcome{kind: released})
	case rec.Suspect() && it.feed.solo != nil:
		// Two concurrent claims have returned one suspect each.
		w.settleLocked(it, outcome{kind: released})
	default:
		w.enqueue(it)
	}
}

// leftToOthers is how long a record is not due that this process cannot handle. Then each worker may be the first
// to claim it. So it is short, because the others need a chance often, and random, because workers that look
// in steady intervals would else be first again and again.
func (w *Worker) leftToOthers() time.Duration { return w.watch()/2 + rand.N(w.watch()/2+1) }

func (w *Worker) enqueue(it *Item) {
	if it.Record.Suspect() {
		it.feed.solo = it
	}
	if first := w.enqueueKey(it); first || w.cfg.Pipelined {
		it.feed.ready = append(it.feed.ready, it)
		signal(it.feed.readySignal)
	}
}

// inherit makes the item the successor of an earlier handling of its record, if that handling
// began under a lost lease and is still running, or has ended but its outcome is not stored
// yet; in this case inherit returns the outcome. before is the item of the previous lease.
func (w *Worker) inherit(it *Item) (how outcome, ended bool, before *Item) {
	h, before, how, ended := w.cfg.Running.inherit(it)
	if h != nil {
		it.handling, it.successor = h, true
		it.state, it.startedAt = taken, h.startedAt
	}
	return how, ended, before
}

// unwanted reports whether an item that was claimed before a change of topics or limit must
// be released.
func (w *Worker) unwanted(it *Item) bool {
	if w.cfg.ByTopic {
		return it.feed.opened == 0
	}
	tooMany := w.limit < w.cfg.BatchSize && w.held() > w.limit
	return tooMany || !w.topics.Match(it.Record.Topic)
}

// endRound records a finished claim. After a failed claim it is unknown whether the store
// has leased records to this owner. If it has, the store would return later records of
// their keys to the same owner, so endRound makes a new owner. A claim that found no record
// does not mean that none was due if another claim was in progress, because that one may
// have got all due records.
func (w *Worker) endRound(o order, got catch, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil && w.ordered() {
		w.owner = outmill.NewOwnerToken()
	}
	delete(w.claiming, o.number)
	if err == nil {
		w.claimedAt = time.Now()
	}
	w.grow(o, got, err)
	w.scheduleNext(o, got, err)
	w.rounds++
	w.lastEmpty, w.lastErr = got.items == 0 && err == nil && o.whole && o.number == w.claims, err
	close(w.roundDone)
	w.roundDone = make(chan struct{})
}

// scheduleNext sets the times at which the feeds of a claim are due again: at once if more
// records may be due, after a growing wait if the claim found none.
func (w *Worker) scheduleNext(o order, got catch, err error) {
	now := time.Now()
	// The claim may have ended before it reached all feeds.
	cut := err != nil || got.suspect || got.items == o.request.Limit || o.cutByBytes(got)
	few := !cut && got.items > 0 && got.items < o.request.Limit/2
	for _, f := range o.feeds {
		if cut || f.brought == o.number || f.tenantWaits() {
			f.look.soon(now)
		} else {
			f.look.foundNothing(now, w.cfg.PollInterval, w.hearsOthers)
		}
		f.look.goOn()
		if few && w.cfg.Pipelined && !f.free() {
			f.look.gatherWhileBusy(now, w.cfg.PollInterval)
		} else if few {
			f.look.notBefore = now.Add(gatherRecords)
		}
		f.gathered()
	}
}
