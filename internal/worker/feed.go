package worker

import (
	"context"
	"slices"
	"time"

	"github.com/outmill/outmill"
)

// Feed has the items of one topic, from the claim until they are settled. A worker that is
// not ByTopic has one feed for all its topics. Claims do not cover a full feed, so that it
// neither fills a batch nor delays the other feeds.
type Feed struct {
	worker *Worker
	// topic is the topic of the feed; name is its entry in a selection.
	topic, name string
	readySignal chan struct{}

	// The worker's mutex guards all fields below. opened counts the open readers (see Open);
	// hands is the number of their handlers.
	opened, hands int
	// ready may contain items that are settled by now.
	ready []*Item
	// held is the load of the unsettled items; asked is the load that claims in progress may
	// add.
	held, asked load
	// aside is the load of the items whose outcomes a sick member of a set has not stored yet.
	aside load
	// orphans counts the handlings that continue after their lease was lost, and whose record
	// was not claimed again. Each keeps a hand busy.
	orphans int
	// tenants counts the items and the orphans of each tenant of the topic.
	tenants *tenants
	// running counts the items whose handling has begun.
	running int
	pace    pace
	// unread says that no reader takes the offered items. Then one record more than those in
	// handling is enough to notice when a reader takes it.
	unread bool
	// solo is a suspect that waits until it is alone in its feed, or that is being handled.
	solo *Item
	look look
	// turn is the number of the last claim that covered the feed; brought is that of the last
	// claim that returned records of it.
	turn, brought int
	// want is the result of the last call of wish; fullSince is the time since which it has
	// been zero.
	want      load
	fullSince time.Time
	// takenAt is the time of the last take. hungry says that the reader waits since; gathers, that it
	// waits although items are ready, for the claim that waited for it.
	takenAt         time.Time
	hungry, gathers bool
}

// load is a number of records and their size.
type load struct{ items, bytes int }

// look is the time at which a claim covers the feed next.
type look struct {
	at   time.Time
	idle time.Duration
	// notBefore delays the claim so that more records become due. It waits for a busy reader too if
	// unlessFree is set, which is the delay without that.
	notBefore, unlessFree time.Time
	// stirred is when something came last.
	stirred time.Time
}

// quiet is the time without a record or a wake-up after which looks are half as frequent, if the
// store wakes for the commits of other processes, too.
const quiet = 10 * time.Second

// gatherWhileBusy delays the claim until the reader has its hands free, at most for so long.
func (l *look) gatherWhileBusy(now time.Time, longest time.Duration) {
	l.unlessFree = now.Add(gatherRecords)
	l.notBefore = now.Add(max(longest, gatherRecords))
}

// readerFree ends the wait for the reader. It reports false if there was none.
func (l *look) readerFree() bool {
	if l.unlessFree.IsZero() {
		return false
	}
	l.notBefore, l.unlessFree = l.unlessFree, time.Time{}
	return true
}

// goOn ends what delays the claim.
func (l *look) goOn() { l.notBefore, l.unlessFree = time.Time{}, time.Time{} }

// soon makes the next claim cover the feed.
func (l *look) soon(now time.Time) { l.at, l.idle, l.stirred = now, firstPoll, now }

func (l *look) due(now time.Time) bool { return !l.at.After(now) && !l.notBefore.After(now) }

// next is when the feed is due.
func (l *look) next() time.Time {
	if l.notBefore.After(l.at) {
		return l.notBefore
	}
	return l.at
}

// nearly reports whether the feed's time comes so soon that the claim of another feed may
// cover it too. So idle feeds share one claim, and the claim of a feed that was woken does
// not cover all the others.
func (l *look) nearly(now time.Time, other *look) bool {
	return !l.at.After(now.Add(min(l.idle, other.idle)/2)) && !l.notBefore.After(now)
}

// foundNothing doubles the wait, up to longest. hearsOthers says that the store
// wakes for the commits of other processes, too.
func (l *look) foundNothing(now time.Time, longest time.Duration, hearsOthers bool) {
	if hearsOthers && now.Sub(l.stirred) > quiet {
		longest *= 2
	}
	l.idle = min(max(l.idle, firstPoll), longest)
	l.at = now.Add(l.idle)
	l.idle = min(2*l.idle, longest)
}

// Open adds a reader of the topic. hands is the number of messages that it handles at a
// time. Open is for workers that are ByTopic. Close the feed once for each Open.
func (w *Worker) Open(topic string, hands int) *Feed {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.feeds[topic]
	if f == nil {
		f = w.newFeed(topic, outmill.Exact(topic))
		w.feeds[topic] = f
		w.feedsChanged()
	}
	f.opened++
	f.hands += hands
	f.look.soon(time.Now())
	signal(w.poke)
	return f
}

func (w *Worker) newFeed(topic, name string) *Feed {
	return &Feed{worker: w, topic: topic, name: name, readySignal: make(chan struct{}, 1), look: look{idle: firstPoll},
		tenants: w.tenantsOf(topic)}
}

// Close removes the hands of one Open. After the last Close, it releases the items that
// were not taken.
func (f *Feed) Close(hands int) {
	w := f.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	f.opened--
	f.hands -= hands
	if f.opened > 0 {
		return
	}
	delete(w.feeds, f.topic)
	w.forgetTenants(f.topic)
	w.changes++
	w.feedsChanged()
	for _, it := range w.items {
		if it.feed == f && it.state == queued {
			w.settleLocked(it, outcome{kind: released})
		}
	}
}

// feedsChanged updates the selection of all feeds.
func (w *Worker) feedsChanged() {
	topics := make(map[string]struct{}, len(w.feeds))
	w.include = make([]string, 0, len(w.feeds))
	for topic, f := range w.feeds {
		topics[topic] = struct{}{}
		w.include = append(w.include, f.name)
	}
	slices.Sort(w.include)
	w.woken.reads(func(topic string) bool { _, read := topics[topic]; return read })
}

// Take waits for items and returns up to limit of them, at least one. After Stop it returns
// ErrClosed. The caller must settle the items.
func (f *Feed) Take(ctx context.Context, limit int) ([]*Item, error) {
	got, err := f.await(ctx, limit)
	return got.items, err
}

// portion is what a reader takes: items or batches.
type portion struct {
	items   []*Item
	batches []*Batch
}

func (p portion) empty() bool { return len(p.items)+len(p.batches) == 0 }

// await is Take. It returns batches if there are any, and no items.
func (f *Feed) await(ctx context.Context, limit int) (portion, error) {
	for {
		if err := ctx.Err(); err != nil {
			// Another reader of the topic may have waited for the same signal.
			signal(f.readySignal)
			return portion{}, err
		}
		got, gathers := f.take(limit)
		if !got.empty() {
			return got, nil
		}
		var late <-chan time.Time
		if gathers {
			late = time.After(gatherRecords)
		}
		select {
		case <-f.readySignal:
		case <-late:
			f.worker.mu.Lock()
			f.gathers = false
			f.worker.mu.Unlock()
		case <-f.worker.stopped:
			return portion{}, outmill.ErrClosed
		case <-ctx.Done():
		}
	}
}

// take takes items or batches. gathers says that it took none, although some are ready, because a claim may add to them.
func (f *Feed) take(limit int) (got portion, gathers bool) {
	w := f.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopping {
		return got, false
	}
	now := time.Now()
	f.takenAt = now
	inBatches, late := w.queuedInBatches(now)
	if late {
		w.breakUp()
	}
	if !f.hungry && f.look.readerFree() {
		f.gathers = !f.look.notBefore.After(now)
		signal(w.poke)
	}
	if f.gathers && len(f.ready)+inBatches < limit {
		f.hungry = true
		return got, true
	}
	// The items that are ready came before the batches.
	if got.items = f.takeReady(now, limit); len(got.items) == 0 {
		got.batches = w.takeBatches(now, limit)
	}
	f.hungry = got.empty()
	return got, false
}

func (f *Feed) takeReady(now time.Time, limit int) []*Item {
	w := f.worker
	items := make([]*Item, 0, min(limit, len(f.ready)))
	var waits *Item
	// It looks at no more items than it returns, because a reader takes a few at a time of a large batch.
	seen := 0
	for ; seen < len(f.ready) && len(items) < limit; seen++ {
		switch it := f.ready[seen]; {
		case it.state != queued:
		case now.After(it.until):
			// The later items of its key are released with it.
			w.settleLocked(it, outcome{kind: released})
		// A suspect is handled while the feed has no other item, so that it can harm only itself.
		case it == f.solo && f.held.items > 1:
			waits = it
		default:
			w.begin(it, now)
			items = append(items, it)
		}
	}
	if waits != nil {
		seen--
		f.ready[seen] = waits
	}
	clear(f.ready[:seen])
	f.ready = f.ready[seen:]
	if len(f.ready) > 0 && len(items) > 0 {
		// Another reader of the topic may have free hands.
		signal(f.readySignal)
	}
	return items
}

// gathered ends the wait for a claim.
func (f *Feed) gathered() {
	if f.gathers {
		f.gathers = false
		signal(f.readySignal)
	}
}

// free reports whether the reader waits, and there is nothing that it will take.
func (f *Feed) free() bool { return f.hungry && !f.anyReady() }

// started records that a handling has begun.
func (f *Feed) started(now time.Time) {
	f.running++
	f.unread = false
	f.pace.started(now, f.takenAt)
}

// ended records that the user has settled an item, so that a hand is free again.
func (f *Feed) ended(it *Item, now time.Time) {
	f.freed(it)
	if f.worker.cfg.AwaitStart && !it.startedAt.IsZero() && !it.successor {
		f.running--
		f.pace.ended(now, it.startedAt)
	}
}

// abandoned records that the worker no longer holds an item. Its handling may continue.
func (f *Feed) abandoned(it *Item) {
	if !it.startedAt.IsZero() && !it.decided {
		it.orphan = true
		f.orphans++
		f.tenantHeld(it)
	}
}

// freed records that an item keeps no hand busy any more.
func (f *Feed) freed(it *Item) {
	if it.orphan {
		it.orphan = false
		f.orphans--
		f.tenantFreed(it)
		signal(f.worker.roomSignal)
	}
}

func (f *Feed) anyReady() bool {
	return slices.ContainsFunc(f.ready, func(it *Item) bool { return it.state == queued }) ||
		slices.ContainsFunc(f.worker.batches, func(b *Batch) bool { return b.state == queued })
}
