package engine

import (
	"context"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// Get returns one record. See outmill.Inspector.
func (e *Engine) Get(ctx context.Context, id outmill.WorkItemID) (*outmill.Record, error) {
	return valueOf(ctx, e.view, "get", func(ctx context.Context, t *tx) (*outmill.Record, error) {
		records, err := t.get(ctx, everything, id)
		if err == nil && len(records) == 0 {
			err = t.notFound(ctx, id)
		}
		if err != nil {
			return nil, err
		}
		return records[0], nil
	})
}

// mostCopies is how many rows behind an id are looked at for copies.
const mostCopies = 100

// notFound is the error of an id that no row has. If it was that of the first record of a message, it names those of other groups, which
// stand together in the order of the ids.
func (t *tx) notFound(ctx context.Context, id outmill.WorkItemID) error {
	before := id
	clear(before[len(before)/2:])
	_, rows, err := t.After(ctx, before, mostCopies, driver.Like{Last: driver.Dead})
	if err != nil {
		return err
	}
	copies := map[string]outmill.WorkItemID{}
	for _, r := range rows {
		if r.Group != "" && outmill.CopyID(id, r.Group) == r.ID {
			copies[r.Group] = r.ID
		}
	}
	if len(copies) == 0 {
		return outmill.ErrNotFound
	}
	return &outmill.CopiesError{ID: id, Copies: copies}
}

// everything is the whole content.
const everything = driver.Metadata | driver.Payload | driver.History

// get returns the records with these ids that exist.
func (t *tx) get(ctx context.Context, want driver.Want, ids ...outmill.WorkItemID) ([]*outmill.Record, error) {
	rows, err := t.Find(ctx, ids)
	if err != nil {
		return nil, err
	}
	_, records, err := t.load(ctx, rows, want)
	return records, err
}

// load reads the content of rows. It leaves out those that were deleted since they were read, and returns the others.
func (t *tx) load(ctx context.Context, rows []driver.Row, want driver.Want) (found []driver.Row, records []*outmill.Record, err error) {
	if len(rows) == 0 {
		return nil, nil, nil
	}
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
	has func(r driver.Row) bool, change func(t *tx, r driver.Row)) (int, error) {
	entry := storekit.NewAuditEntry(ctx, action, ids...)
	return valueOf(ctx, e.update, operation, func(ctx context.Context, t *tx) (int, error) {
		find := func(ctx context.Context, _ int) ([]driver.Row, error) {
			rows, err := t.Find(ctx, ids)
			return slices.DeleteFunc(rows, func(r driver.Row) bool { return !has(r) }), err
		}
		changed, lost, err := t.changeAll(ctx, len(ids), find, func(r driver.Row) { change(t, r) })
		if lost {
			err = errLost
		}
		if err != nil {
			return 0, err
		}
		return changed, t.audit(ctx, entry, changed)
	})
}

// Requeue makes dead records pending again, those of a parked key in steps. See outmill.Inspector.
func (e *Engine) Requeue(ctx context.Context, ids ...outmill.WorkItemID) (requeued int, err error) {
	const operation = "requeue"
	if len(ids) == 0 {
		return 0, e.explain(ctx, operation, e.life.Usable(ctx))
	}
	defer func() {
		if requeued > 0 {
			e.wake()
		}
	}()
	ctx = storekit.OneCommand(ctx)
	var due driver.Time
	keys, err := valueOf(ctx, e.view, operation, func(ctx context.Context, t *tx) ([]driver.Row, error) {
		due = t.now
		rows, err := t.Find(ctx, ids)
		return slices.DeleteFunc(rows, func(r driver.Row) bool { return !isDead(r) || !r.Parked || r.Group == "" }), err
	})
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

func isDead(r driver.Row) bool { return r.Stage == driver.Dead }

func (t *tx) requeue(r driver.Row, due driver.Time) {
	t.change(r, func(r *driver.Row) { requeue(r, due) })
}

// requeueBehind requeues up to limit parked rows of the key of the head whose Seqs are above from. more says that others may be left:
// after a step that is not full, a row that is parked by now was parked later.
func (t *tx) requeueBehind(ctx context.Context, head driver.Row, from int64, due driver.Time, limit int) (n int, more bool, err error) {
	behind := t.searched(driver.Search{By: driver.ByParked, Line: head.Line, Key: head.Key, From: from})
	n, lost, err := t.changeAll(ctx, limit, behind, func(r driver.Row) { t.requeue(r, due) })
	return n, n == limit || lost, err
}

// lockLine locks the line: no claim decides about it until the transaction ends.
func (t *tx) lockLine(ctx context.Context, line driver.Line) error {
	_, err := t.Page(ctx, driver.Ask{Line: line, Limit: 1, Lock: true})
	return err
}

// requeueParked requeues all parked records of a key, in their order and with one due time, in steps that
// grow: claims between two steps may park the first ones again.
func (e *Engine) requeueParked(ctx context.Context, operation string, k driver.Row, due driver.Time, entry roles.AuditEntry) (
	requeued int, err error) {
	for more, nth := true, 0; more && err == nil; nth++ {
		limit := e.config.AtOnce.Requeue(nth)
		var n int
		n, err = valueOf(ctx, e.update, operation, func(ctx context.Context, t *tx) (n int, err error) {
			if err = t.lockLine(ctx, k.Line); err != nil {
				return 0, err
			}
			// A worker that parks it again must not keep the call going.
			if n, more, err = t.requeueBehind(ctx, k, 0, due, limit); err != nil {
				return 0, err
			}
			return n, t.audit(ctx, entry, n)
		})
		requeued += n
	}
	return requeued, err
}
