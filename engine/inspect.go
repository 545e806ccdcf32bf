package engine

import (
	"bytes"
	"context"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// Get returns one record. See outmill.Inspector.
func (e *Engine) Get(ctx context.Context, id outmill.WorkItemID) (record *outmill.Record, err error) {
	err = e.view(ctx, "get", func(ctx context.Context, t *tx) error {
		records, err := t.get(ctx, everything, id)
		if err != nil {
			return err
		}
		if len(records) == 0 {
			return outmill.ErrNotFound
		}
		record = records[0]
		return nil
	})
	return record, err
}

// everything is the whole content.
const everything = driver.Metadata | driver.Payload | driver.History

// get returns the records with these ids that exist.
func (t *tx) get(ctx context.Context, want driver.Want, ids ...outmill.WorkItemID) ([]*outmill.Record, error) {
	rows, err := t.Find(ctx, ids)
	if err != nil {
		return nil, err
	}
	return t.records(ctx, rows, want)
}

// records reads the content of rows. It leaves out those that were deleted since they were read.
func (t *tx) records(ctx context.Context, rows []driver.Row, want driver.Want) ([]*outmill.Record, error) {
	_, records, err := t.load(ctx, rows, want)
	return records, err
}

// load is records. It also returns the rows of the records.
func (t *tx) load(ctx context.Context, rows []driver.Row, want driver.Want) (
	found []driver.Row, records []*outmill.Record, err error) {
	loaded, err := t.Load(ctx, rows, want)
	if err != nil {
		return nil, nil, err
	}
	for i, c := range loaded {
		if c.Record == nil {
			continue
		}
		fill(c.Record, &rows[i])
		c.Record.Unreadable = unreadable(rows[i], c)
		c.Record.History = historyOf(c.History)
		found, records = append(found, rows[i]), append(records, c.Record)
	}
	return found, records, nil
}

// Delete removes records. See outmill.Inspector.
func (e *Engine) Delete(ctx context.Context, ids ...outmill.WorkItemID) (int, error) {
	return e.deleteWith(ctx, "", ids)
}

// deleteWith deletes those records that have the status; "" is any.
func (e *Engine) deleteWith(ctx context.Context, status outmill.Status, ids []outmill.WorkItemID) (int, error) {
	const operation = "delete"
	if len(ids) == 0 {
		return 0, e.explain(ctx, operation, e.life.Usable(ctx))
	}
	has := func(r driver.Row) bool { return status == "" || statusOf(r.Stage) == status }
	return e.changeFound(ctx, operation, roles.AuditDelete, ids, has, (*tx).remove)
}

// changeFound changes the rows with these ids for which a condition holds, and returns how many there were.
func (e *Engine) changeFound(ctx context.Context, operation string, action roles.AuditAction, ids []outmill.WorkItemID,
	has func(r driver.Row) bool, change func(t *tx, r driver.Row)) (changed int, err error) {
	entry := storekit.NewAuditEntry(ctx, action, ids...)
	err = e.update(ctx, operation, func(ctx context.Context, t *tx) (err error) {
		find := func(ctx context.Context, _ int) ([]driver.Row, error) {
			rows, err := t.Find(ctx, ids)
			return slices.DeleteFunc(rows, func(r driver.Row) bool { return !has(r) }), err
		}
		var lost bool
		changed, lost, err = t.changeAll(ctx, len(ids), find, func(r driver.Row) { change(t, r) })
		if err != nil {
			return err
		}
		if lost {
			return errLost
		}
		return t.audit(ctx, entry, changed)
	})
	if err != nil {
		return 0, err
	}
	return changed, nil
}

// Requeue makes dead records pending again, those of a parked key in steps. See outmill.Inspector.
func (e *Engine) Requeue(ctx context.Context, ids ...outmill.WorkItemID) (requeued int, err error) {
	const operation = "requeue"
	if len(ids) == 0 {
		return 0, e.explain(ctx, operation, e.life.Usable(ctx))
	}
	defer func() {
		if requeued > 0 {
			e.notifier.Notify()
		}
	}()
	ctx = storekit.OneCommand(ctx)
	keys, due, err := e.parkedKeys(ctx, operation, ids)
	if err != nil {
		return 0, err
	}
	for _, k := range keys {
		n, err := e.requeueParked(ctx, operation, k, due, storekit.NewAuditEntry(ctx, roles.AuditRequeue, ids...))
		if requeued += n; err != nil {
			return requeued, err
		}
	}
	n, err := e.changeFound(ctx, operation, roles.AuditRequeue, ids, isDead, func(t *tx, r driver.Row) { t.requeue(r, due) })
	return requeued + n, err
}

func sortByID(rows []driver.Row) {
	slices.SortFunc(rows, func(a, b driver.Row) int { return bytes.Compare(a.ID[:], b.ID[:]) })
}

func isDead(r driver.Row) bool { return r.Stage == driver.Dead }

func (t *tx) requeue(r driver.Row, due driver.Time) {
	t.change(r, func(r *driver.Row) { requeue(r, due) })
}

// parkedKeys returns a row of each record with one of these ids that is parked, and the time of the database.
func (e *Engine) parkedKeys(ctx context.Context, operation string, ids []outmill.WorkItemID) (
	keys []driver.Row, now driver.Time, err error) {
	err = e.view(ctx, operation, func(ctx context.Context, t *tx) error {
		rows, err := t.Find(ctx, ids)
		now, keys = t.now, nil
		for _, r := range rows {
			if isDead(r) && r.Parked && r.Group != "" {
				keys = append(keys, r)
			}
		}
		return err
	})
	return keys, now, err
}

// requeueParked requeues all parked records of a key, in their order and with one due time, in steps that
// grow: claims between two steps may park the first ones again.
func (e *Engine) requeueParked(ctx context.Context, operation string, k driver.Row, due driver.Time, entry roles.AuditEntry) (
	requeued int, err error) {
	for nth := 0; ; nth++ {
		n := 0
		err := e.update(ctx, operation, func(ctx context.Context, t *tx) (err error) {
			if _, err := t.Page(ctx, driver.Ask{Line: k.Line, Limit: 1, Lock: true}); err != nil {
				return err
			}
			parked := t.searched(driver.Search{By: driver.ByParked, Line: k.Line, Key: k.Key})
			n, _, err = t.changeAll(ctx, e.config.AtOnce.Requeue(nth), parked, func(r driver.Row) { t.requeue(r, due) })
			if err != nil {
				return err
			}
			return t.audit(ctx, entry, n)
		})
		if err != nil || n == 0 {
			return requeued, err
		}
		requeued += n
	}
}

// finder has the queries of List and Operator.
type finder struct{ e *Engine }

// Search looks at a bounded number of records behind an id. See storekit.FindStore.
func (f finder) Search(ctx context.Context, operation string, query outmill.ListQuery) (found storekit.Searched, err error) {
	err = f.e.view(ctx, operation, func(ctx context.Context, t *tx) error {
		found, err = storekit.Search(query, 1, func(ranges []storekit.SearchRange, each int) ([]storekit.Looked, error) {
			rows, err := t.After(ctx, ranges[0].After, each)
			if err != nil {
				return nil, err
			}
			records, err := t.records(ctx, rows, headOf(query))
			looked := make([]storekit.Looked, len(records))
			for i, r := range records {
				looked[i] = storekit.Looked{ID: r.ID, Matches: storekit.Matches(query, r)}
			}
			return looked, err
		})
		return err
	})
	return found, err
}

// headOf is what the conditions of a query look at.
func headOf(query outmill.ListQuery) driver.Want {
	if query.Contract != "" || query.ContractVersion != 0 {
		return driver.Metadata
	}
	return 0
}

// wantedIn is what a list asks for.
func wantedIn(ctx context.Context) (want driver.Want) {
	payload, metadata := storekit.ContentOf(ctx)
	if payload {
		want |= driver.Payload
	}
	if metadata {
		want |= driver.Metadata
	}
	return want
}

// Records returns the records with these ids, by id.
func (f finder) Records(ctx context.Context, operation string, ids []outmill.WorkItemID) (records []*outmill.Record, err error) {
	err = f.e.view(ctx, operation, func(ctx context.Context, t *tx) error {
		records, err = t.get(ctx, wantedIn(ctx), ids...)
		return err
	})
	slices.SortFunc(records, func(a, b *outmill.Record) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	return records, err
}

// Requeue requeues records.
func (f finder) Requeue(ctx context.Context, ids ...outmill.WorkItemID) (int, error) {
	return f.e.Requeue(ctx, ids...)
}

// Delete deletes those records that have the status; "" is any.
func (f finder) Delete(ctx context.Context, status outmill.Status, ids []outmill.WorkItemID) (int, error) {
	return f.e.deleteWith(ctx, status, ids)
}

// Explain adds the operation to an error.
func (f finder) Explain(ctx context.Context, operation string, err error) error {
	return f.e.explain(ctx, operation, err)
}
