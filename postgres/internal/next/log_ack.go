package next

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/outmill/outmill"
)

// keepLeases remembers where the leases of a transaction are, after its commit.
func (t *tx) keepLeases() {
	if t.log != nil {
		t.d.log.keep(t.log.leases, t.log.moved)
	}
}

// keep remembers leases, and forgets those of rows that have moved.
func (l *driverLog) keep(leases []logRef, moved []outmill.WorkItemID) {
	if len(leases)+len(moved) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.leased == nil {
		l.leased = map[outmill.WorkItemID]logRef{}
	}
	for i := range leases {
		l.leased[leases[i].id] = leases[i]
	}
	for _, id := range moved {
		delete(l.leased, id)
	}
	if now := time.Now(); now.Sub(l.looked) > rememberedFor {
		l.looked = now
		maps.DeleteFunc(l.leased, func(_ outmill.WorkItemID, ref logRef) bool { return now.Sub(ref.batch.ends) > rememberedFor })
	}
}

// rememberedFor is how long a lease is remembered behind its end: it is still valid until another claim meets it. What is forgotten is
// found in the batches.
const rememberedFor = time.Minute

// remembered returns where leases are, as far as the process knows, and forgets it if told so.
func (l *driverLog) remembered(ids []outmill.WorkItemID, forget bool) (found []logRef, unknown []outmill.WorkItemID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		ref, known := l.leased[id]
		if !known {
			unknown = append(unknown, id)
			continue
		}
		found = append(found, ref)
		if forget {
			delete(l.leased, id)
		}
	}
	return found, unknown
}

// ackLog settles the leases of which the process knows the batches, in one round trip, and returns the others.
func (d *Driver) ackLog(ctx context.Context, leases []outmill.Lease, durable bool) (left []outmill.Lease, err error) {
	byID := make(map[outmill.WorkItemID]outmill.Lease, len(leases))
	ids := make([]outmill.WorkItemID, 0, len(leases))
	for _, lease := range leases {
		if _, twice := byID[lease.ID]; !twice {
			ids = append(ids, lease.ID)
		}
		byID[lease.ID] = lease
	}
	found, unknown := d.log.remembered(ids, false)
	batches := map[*workBatch][]logRef{}
	for _, ref := range found {
		if !ref.batch.isOf(byID[ref.id]) {
			unknown = append(unknown, ref.id)
			continue
		}
		batches[ref.batch] = append(batches[ref.batch], ref)
	}
	if len(batches) > 0 {
		if unknown, err = d.ackBatches(ctx, batches, unknown, durable); err != nil {
			return nil, err
		}
	}
	for _, id := range unknown {
		left = append(left, byID[id])
	}
	return left, nil
}

// ackBatches also adds the ids of those rows that were open in none of the batches.
func (d *Driver) ackBatches(ctx context.Context, batches map[*workBatch][]logRef, unknown []outmill.WorkItemID, durable bool) (
	left []outmill.WorkItemID, err error) {
	order := slices.SortedFunc(maps.Keys(batches), func(a, b *workBatch) int {
		x, y := batches[a][0].line, batches[b][0].line
		return cmp.Or(cmp.Compare(x.topic, y.topic), cmp.Compare(x.chain, y.chain), cmp.Compare(a.n, b.n))
	})
	d.log.pace.used.Store(true)
	err = d.repeat(ctx, func(bool) error {
		left = slices.Clone(unknown)
		return d.alone(ctx, durable, func(t *tx) {
			t.add("log_tables", nil, nil)
			for _, batch := range order {
				rows := batches[batch]
				var mask any
				if len(rows) < int(batch.size) {
					mask = maskOf(batch, rows)
				}
				t.add("log_settle", []any{rows[0].line.topic, rows[0].line.chain, batch.n, batch.token, mask}, func(scan scan) error {
					won := ""
					err := scan(&won)
					for _, r := range rows {
						if r.ordinal >= len(won) || won[r.ordinal] != '1' {
							left = append(left, r.id)
						}
					}
					return err
				})
				line := rows[0].line
				t.add("log_open_notes", []any{line.topic, line.chain, batch.n, batch.token, mask, line.group}, nil)
			}
		})
	})
	if err != nil {
		return nil, err
	}
	var ids []outmill.WorkItemID
	for _, rows := range batches {
		for _, r := range rows {
			ids = append(ids, r.id)
		}
	}
	d.log.remembered(ids, true)
	return left, nil
}
