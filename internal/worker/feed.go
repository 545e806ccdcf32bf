package worker

import (
	"context"
	"slices"
	"time"

	"github.com/outmill/outmill"
)

// Feed is the records of one topic on their way to its handlers, from the claim
// until they are settled. A worker that is not ByTopic has one feed for all its
// topics. A feed that is full is left out of the claims, so that it neither fills
// a batch nor delays the other feeds.
type Feed struct {
	worker *Worker
	// topic is the feed's, name the entry of a selection that stands for it.
	topic, name string
	readySignal chan struct{}

	// All below is guarded by the worker's mutex.
	// opened counts the Opens that are not closed, hands the handlers of them all.
	opened, hands int
	// ready may have items that were settled in the meantime.
	ready []*Item
	// held is what was claimed and is not settled, asked what claims under way may
	// bring.
	held, asked load
	// orphans are handlings that go on although their lease was lost, and whose
	// record has not come again: each keeps a hand busy.
	orphans int
	// running counts the items whose handling has begun.
	running int
	pace    pace
	// unread: nobody takes what is offered, so one record more than those in handling is
	// enough to see when somebody does.
	unread bool
	// solo is a suspect that waits until it is alone in its feed, or is being
	// handled.
	solo *Item
	look look
	// turn numbers the last claim that covered the feed, brought the last one that
	// brought records of it.
	turn, brought int
	// want and since when there is none are of the last look for room.
	want      load
	fullSince time.Time
	// takenAt is when items were last taken.
	takenAt time.Time
}

// load is a number of records and their size.
type load struct{ items, bytes int }

// look says when a claim covers the feed next.
type look struct {
	at   time.Time
	idle time.Duration
	// notBefore lets records gather.
	notBefore time.Time
}

// soon has the feed covered by the next claim.
func (l *look) soon(now time.Time) { l.at, l.idle = now, firstPoll }

func (l *look) due(now time.Time) bool { return !l.at.After(now) && !l.notBefore.After(now) }

// next is when the feed is due.
func (l *look) next() time.Time {
	if l.notBefore.After(l.at) {
		return l.notBefore
	}
	return l.at
}

// nearly is true for a feed whose time comes so soon that the claim of another
// one may cover it too: feeds that are idle then share one claim, and one that was
// woken is not delayed by a look at all the others.
func (l *look) nearly(now time.Time, other *look) bool {
	return !l.at.After(now.Add(min(l.idle, other.idle)/2)) && !l.notBefore.After(now)
}

// foundNothing lets the waits grow up to the longest.
func (l *look) foundNothing(now time.Time, longest time.Duration) {
	l.idle = min(max(l.idle, firstPoll), longest)
	l.at = now.Add(l.idle)
	l.idle = min(2*l.idle, longest)
}

// Open adds a reader of the topic with so many hands: it handles that many
// messages at a time. It is for workers that are ByTopic. Close the feed once for
// each Open.
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
	return &Feed{worker: w, topic: topic, name: name, readySignal: make(chan struct{}, 1), look: look{idle: firstPoll}}
}

// Close takes the hands of one Open away. What the last one leaves behind, and
// nobody has taken, is given back.
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
	w.wishes++
	w.feedsChanged()
	for _, it := range w.items {
		if it.feed == f && it.state == queued {
			w.settleLocked(it, outcome{kind: released})
		}
	}
}

// feedsChanged makes the selection of all feeds new.
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

// Take returns up to limit items, at least one; it waits for them, and returns
// ErrClosed once the worker was stopped. The items are the caller's to settle.
func (f *Feed) Take(ctx context.Context, limit int) ([]*Item, error) {
	for {
		if err := ctx.Err(); err != nil {
			// Another reader of the topic may have waited for the same signal.
			signal(f.readySignal)
			return nil, err
		}
		if items := f.take(limit); len(items) > 0 {
			return items, nil
		}
		select {
		case <-f.readySignal:
		case <-f.worker.stopped:
			return nil, outmill.ErrClosed
		case <-ctx.Done():
		}
	}
}

func (f *Feed) take(limit int) []*Item {
	w := f.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopping {
		return nil
	}
	now := time.Now()
	f.takenAt = now
	for _, it := range f.ready {
		// Those behind it in its key go back with it.
		if it.state == queued && now.After(it.until) {
			w.settleLocked(it, outcome{kind: released})
		}
	}
	items := make([]*Item, 0, min(limit, len(f.ready)))
	rest := f.ready[:0]
	for _, it := range f.ready {
		switch {
		case it.state != queued:
		// A suspect is handled while nothing else of the feed is, so that it can only
		// take itself down.
		case len(items) == limit || it == f.solo && f.held.items > 1:
			rest = append(rest, it)
		default:
			w.begin(it, now)
			items = append(items, it)
		}
	}
	clear(f.ready[len(rest):])
	f.ready = rest
	if len(rest) > 0 && len(items) > 0 {
		// Another reader of the topic may have hands free.
		signal(f.readySignal)
	}
	return items
}

// started notes that a handling has begun.
func (f *Feed) started(now time.Time) {
	f.running++
	f.unread = false
	f.pace.started(now, f.takenAt)
}

// ended notes that the user has settled an item, and so has a hand free again.
func (f *Feed) ended(it *Item, now time.Time) {
	f.freed(it)
	if f.worker.cfg.AwaitStart && !it.startedAt.IsZero() && !it.heir {
		f.running--
		f.pace.ended(now, it.startedAt)
	}
}

// abandoned notes that an item is held no more. Its handling may go on.
func (f *Feed) abandoned(it *Item) {
	if !it.startedAt.IsZero() && !it.decided {
		it.orphan = true
		f.orphans++
	}
}

// freed notes that an item keeps no hand busy any more.
func (f *Feed) freed(it *Item) {
	if it.orphan {
		it.orphan = false
		f.orphans--
		signal(f.worker.roomSignal)
	}
}

func (f *Feed) anyReady() bool {
	return slices.ContainsFunc(f.ready, func(it *Item) bool { return it.state == queued })
}
