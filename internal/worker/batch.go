package worker

import (
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// Batch is what a claim has returned, as one thing: nobody has handled one of its records before, and if all are acked at once, nothing is
// ever asked of a single one. So it needs neither an Item nor an entry in a map for each record. As soon as anything else may happen to one
// of them, all batches of the worker that are not acked become items: see breakUp. That is so before an ack of a part, a failure, a
// release, a pause, a change of the topics, the end of the worker, and before a lease is extended or ends.
//
// Batches are for a reader that handles one after the other, in the order in which it takes them: see Config.Whole.
type Batch struct {
	worker  *Worker
	feed    *Feed
	records []roles.RawRecord
	bytes   int
	// keyed says that one of the records has a key.
	keyed     bool
	claimedAt time.Time
	// until is as that of an item.
	until time.Time

	// The worker's mutex guards the fields below. A batch that has become items is gone.
	state     itemState
	startedAt time.Time
	items     []*Item
}

// Raw returns the records as the store has claimed them. Nobody may change them.
func (b *Batch) Raw() []roles.RawRecord { return b.records }

// Started tells the worker that the handling has begun. It reports false if the batch has become items, or its lease has ended.
func (b *Batch) Started() bool {
	w := b.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	b.startedAt = time.Now()
	return b.state == taken && !b.startedAt.After(b.until)
}

// Ack makes all records processed.
func (b *Batch) Ack() {
	for _, it := range b.conclude() {
		it.Ack()
	}
}

// conclude passes the ack to the next flush, or returns the items that the batch has become.
func (b *Batch) conclude() []*Item {
	w := b.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	if b.state == taken {
		b.state = settled
		w.acked = append(w.acked, b)
		w.ackedN += len(b.records)
		signal(w.settleSignal)
	}
	return b.items
}

// Items returns the records as items, in their order. It is for a batch that was taken and not acked.
func (b *Batch) Items() []*Item {
	w := b.worker
	w.mu.Lock()
	defer w.mu.Unlock()
	w.breakUp()
	return b.items
}

// held is how many records the worker has.
func (w *Worker) held() int { return len(w.items) + w.inBatches }

// batchOf returns the batch of a claim. It returns nil if one of the records may need something of its own: if it was claimed before, so
// that this process may still handle it under an older lease, if a pause covers it, if its store is one of several, or if something has
// happened since the claim began.
func (w *Worker) batchOf(o order, records []roles.RawRecord, tried bool, began func(outmill.Lease) time.Time) *Batch {
	if w.cfg.Whole == nil || len(records) == 0 || tried || len(w.tainted) > 0 || o.changes != w.changes || !w.cfg.Whole() {
		return nil
	}
	b := &Batch{worker: w, feed: w.feeds[""], records: records, claimedAt: began(records[0].Lease())}
	b.until = b.claimedAt.Add(w.cfg.Lease)
	for i := range records {
		r := &records[i]
		if r.Claims != 1 || r.Store != "" || w.paused.Covers(r.Record) {
			return nil
		}
		b.keyed = b.keyed || r.Key != ""
		b.bytes += r.Size()
	}
	return b
}

// admitBatch queues a batch.
func (w *Worker) admitBatch(b *Batch, number int) {
	n, f := len(b.records), b.feed
	w.batches = append(w.batches, b)
	w.inBatches += n
	f.brought = number
	f.held.items += n
	f.held.bytes += b.bytes
	signal(f.readySignal)
}

// breakUp makes items of the batches that are not acked, in the order of their claims, so that the items of a key are in order.
func (w *Worker) breakUp() {
	if len(w.batches) == 0 {
		return
	}
	batches := w.batches
	w.batches = nil
	for _, b := range batches {
		if b.state == settled {
			w.batches = append(w.batches, b)
			continue
		}
		w.itemsOf(b)
	}
}

// breakUpOld breaks up before the lease of a batch is extended. An item then has its own.
func (w *Worker) breakUpOld() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for _, b := range w.batches {
		if b.state != settled && b.until.Sub(now) <= w.extendFrom() {
			w.breakUp()
			return
		}
	}
}

// itemsOf makes the items of a batch, in its state. The caller takes the batch from the list.
func (w *Worker) itemsOf(b *Batch) {
	b.items = make([]*Item, len(b.records))
	for i, raw := range b.records {
		it := w.newItem(raw, b.claimedAt)
		b.items[i], w.items[it.lease.ID] = it, it
		switch b.state {
		case queued:
			w.enqueue(it)
		case taken:
			w.begin(it, b.startedAt)
			w.enqueueKey(it)
		case settled:
			it.state, it.decided = settled, true
		case gone:
		}
	}
	w.inBatches -= len(b.records)
	b.state = gone
}

// takeBatches returns the next batches, at least one if there is one, and otherwise not more than limit records.
func (w *Worker) takeBatches(now time.Time, limit int) (batches []*Batch) {
	for _, b := range w.batches {
		if b.state != queued {
			continue
		}
		if limit -= len(b.records); limit < 0 && len(batches) > 0 {
			break
		}
		b.state, b.startedAt = taken, now
		batches = append(batches, b)
	}
	return batches
}

// queuedInBatches is how many records nobody has taken. late says that the lease of one has ended.
func (w *Worker) queuedInBatches(now time.Time) (n int, late bool) {
	for _, b := range w.batches {
		if b.state == queued {
			n += len(b.records)
			late = late || now.After(b.until)
		}
	}
	return n, late
}

// leasesOf returns the leases of batches.
func leasesOf(batches []*Batch) []outmill.Lease {
	n := 0
	for _, b := range batches {
		n += len(b.records)
	}
	leases := make([]outmill.Lease, 0, n)
	for _, b := range batches {
		for i := range b.records {
			leases = append(leases, b.records[i].Lease())
		}
	}
	return leases
}

// forgetBatches frees the budget of batches whose acks are stored.
func (w *Worker) forgetBatches(batches []*Batch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	oldest := now
	for _, b := range batches {
		n, f := len(b.records), b.feed
		b.state = gone
		w.inBatches -= n
		w.flushing -= n
		w.settledN += n
		f.held.items -= n
		f.held.bytes -= b.bytes
		if b.claimedAt.Before(oldest) {
			oldest = b.claimedAt
		}
		if b.keyed {
			w.lookAgain(f, now)
		}
		// A suspect waits until it is the only item of its feed.
		signal(f.readySignal)
	}
	w.dropGone()
	w.noteOldest(oldest, now)
	w.noteRemoval()
	signal(w.roomSignal)
}

// dropGone takes batches that are gone from the list.
func (w *Worker) dropGone() {
	left := w.batches[:0]
	for _, b := range w.batches {
		if b.state != gone {
			left = append(left, b)
		}
	}
	clear(w.batches[len(left):])
	w.batches = left
}

// ackedItems makes items of batches whose acks could not be stored, and returns their outcomes.
func (w *Worker) ackedItems(batches []*Batch) (list []outcome) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range batches {
		w.itemsOf(b)
		for _, it := range b.items {
			list = append(list, outcome{kind: acked, item: it})
		}
	}
	w.dropGone()
	return list
}
