package driver

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/outmill/outmill"
)

// keepLeases remembers where the leases of a transaction are, after its commit.
func (t *tx) keepLeases() { t.d.log.keep(t.log.leases, t.log.moved) }

// leasedBatch is a batch that the process has leased. places and ids are those of its rows, by ordinal; ids is nil once it is indexed.
type leasedBatch struct {
	line   *logLine
	batch  *workBatch
	places []int64
	ids    []outmill.WorkItemID
}

// isAll reports whether the leases begin with those of all rows, in their order.
func (b *leasedBatch) isAll(leases []outmill.Lease) bool {
	if len(b.ids) == 0 || len(leases) < len(b.ids) {
		return false
	}
	for i := range b.ids {
		if leases[i].ID != b.ids[i] || leases[i].Claim != 1 || leases[i].Owner != leases[0].Owner {
			return false
		}
	}
	return leases[0].Owner.String() == b.batch.owner
}

// leasedRow is a row of a leasedBatch. A process remembers many, so it is small.
type leasedRow struct {
	of      *leasedBatch
	ordinal int32
}

// keep remembers leases, and forgets those of rows that have moved. It indexes a batch only when somebody asks for one of its rows: nearly
// always all rows of a batch are acked at once, in their order.
func (l *driverLog) keep(leased []*leasedBatch, moved []outmill.WorkItemID) {
	if len(leased)+len(moved) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unindexed = append(l.unindexed, leased...)
	if len(moved) > 0 || len(l.unindexed) > mostUnindexed {
		l.index()
	}
	for _, id := range moved {
		delete(l.leased, id)
	}
	if now := time.Now(); now.Sub(l.looked) > rememberedFor {
		l.looked = now
		l.unindexed = slices.DeleteFunc(l.unindexed, func(b *leasedBatch) bool { return now.Sub(b.batch.ends) > rememberedFor })
		maps.DeleteFunc(l.leased, func(_ outmill.WorkItemID, r leasedRow) bool { return now.Sub(r.of.batch.ends) > rememberedFor })
	}
}

// mostUnindexed is how many batches are looked through.
const mostUnindexed = 16

// index makes the rows of all batches known by their ids.
func (l *driverLog) index() {
	if l.leased == nil {
		l.leased = map[outmill.WorkItemID]leasedRow{}
	}
	for _, b := range l.unindexed {
		for i := range b.ids {
			l.leased[b.ids[i]] = leasedRow{b, int32(i)}
		}
		b.ids = nil
	}
	l.unindexed = nil
}

// rememberedFor is how long a lease is remembered behind its end: it is still valid until another claim meets it. What is forgotten is
// found in the batches.
const rememberedFor = time.Minute

// remembered returns where leases are, as far as the process knows.
func (l *driverLog) remembered(ids []outmill.WorkItemID) (found []logRef) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.index()
	for _, id := range ids {
		if r, known := l.leased[id]; known {
			found = append(found, logRef{line: r.of.line, id: id, pos: r.of.places[r.ordinal], batch: r.of.batch, ordinal: int(r.ordinal)})
		}
	}
	return found
}

// ackLog settles the leases of which the process knows the batches, in one round trip, and returns the others.
func (d *Driver) ackLog(ctx context.Context, leases []outmill.Lease, durable bool) (left []outmill.Lease, err error) {
	acks, unknown := d.log.acksOf(leases)
	if len(acks) == 0 {
		return unknown, nil
	}
	d.log.pace.used.Store(true)
	err = d.repeat(ctx, func(failures) error {
		left = slices.Clone(unknown)
		return d.alone(ctx, durable, func(t *tx) {
			t.add("log_tables", nil, nil)
			for _, a := range acks {
				a.add(t, &left)
			}
		})
	})
	if err != nil {
		return nil, err
	}
	d.log.forget(acks)
	return left, nil
}

// batchAck are the leases of a batch that an ack has.
type batchAck struct {
	*leasedBatch
	leases []outmill.Lease
	// nth has, at the ordinal of each row of the batch, which of leases is its lease, from 1; 0 is none. It is nil if leases are those of all
	// rows, in their order.
	nth []int32
}

// leaseOf returns the lease of a row; nil is none.
func (a *batchAck) leaseOf(ordinal int) *outmill.Lease {
	if a.nth == nil {
		return &a.leases[ordinal]
	}
	if nth := a.nth[ordinal]; nth > 0 {
		return &a.leases[nth-1]
	}
	return nil
}

// acksOf are the leases of which the process knows the batches, in the order of the locks, each lease once, and the others.
func (l *driverLog) acksOf(leases []outmill.Lease) (acks []*batchAck, unknown []outmill.Lease) {
	owner := leases[0].Owner.String()
	byBatch, last := map[*leasedBatch]*batchAck{}, &batchAck{}
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(leases) > 0 {
		i := slices.IndexFunc(l.unindexed, func(b *leasedBatch) bool { return byBatch[b] == nil && b.isAll(leases) })
		if i < 0 {
			break
		}
		b := l.unindexed[i]
		n := len(b.ids)
		byBatch[b] = &batchAck{leasedBatch: b, leases: leases[:n]}
		acks, leases = append(acks, byBatch[b]), leases[n:]
	}
	if len(leases) > 0 {
		clear(byBatch)
		l.index()
	}
	for _, lease := range leases {
		r, known := l.leased[lease.ID]
		if !known || lease.Claim != 1 || r.of.batch.owner != owner {
			unknown = append(unknown, lease)
			continue
		}
		if last.leasedBatch != r.of {
			if last = byBatch[r.of]; last == nil {
				size := int(r.of.batch.size)
				last = &batchAck{leasedBatch: r.of, nth: make([]int32, size), leases: make([]outmill.Lease, 0, min(len(leases), size))}
				byBatch[r.of] = last
				acks = append(acks, last)
			}
		}
		if last.nth[r.ordinal] == 0 {
			last.leases = append(last.leases, lease)
			last.nth[r.ordinal] = int32(len(last.leases))
		}
	}
	slices.SortFunc(acks, func(a, b *batchAck) int {
		return cmp.Or(cmp.Compare(a.line.topic, b.line.topic), cmp.Compare(a.line.chain, b.line.chain), cmp.Compare(a.batch.n, b.batch.n))
	})
	return acks, unknown
}

// forget forgets leases that are settled.
func (l *driverLog) forget(acks []*batchAck) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range acks {
		if i := slices.Index(l.unindexed, a.leasedBatch); i >= 0 && a.nth == nil {
			l.unindexed = slices.Delete(l.unindexed, i, i+1)
			continue
		}
		for i := range a.leases {
			delete(l.leased, a.leases[i].ID)
		}
	}
}

// add queues the statement. It adds the leases of rows that are not open to left.
func (a *batchAck) add(t *tx, left *[]outmill.Lease) {
	line, batch := a.line, a.batch
	t.add("log_ack", []any{line.topic, line.chain, batch.n, batch.token, a.mask(), line.group}, func(scan scan) error {
		won := ""
		err := scan(&won, nil)
		for ordinal := range int(batch.size) {
			if lease := a.leaseOf(ordinal); lease != nil && (ordinal >= len(won) || won[ordinal] != '1') {
				*left = append(*left, *lease)
			}
		}
		return err
	})
}

// mask has a bit for each row of the batch; nil is all of them.
func (a *batchAck) mask() any {
	if len(a.leases) == int(a.batch.size) {
		return nil
	}
	bits := make([]byte, len(a.nth))
	for i, nth := range a.nth {
		if bits[i] = '0'; nth > 0 {
			bits[i] = '1'
		}
	}
	return string(bits)
}
