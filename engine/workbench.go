package engine

import (
	"context"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// letters returns those of the dead records that no other record has parked, in the order of the ids: each that is not marked as
// parked, and the first marked one of each key. It counts the marked records behind each, up to MaxWaiting.
func (e *Engine) letters(ctx context.Context, operation string, want driver.Want, ids []outmill.WorkItemID) ([]roles.DeadLetter, error) {
	return valueOf(ctx, e.view, operation, func(ctx context.Context, t *tx) (letters []roles.DeadLetter, err error) {
		rows, err := t.Find(ctx, ids)
		if err == nil {
			rows, err = t.heads(ctx, rows)
		}
		if err != nil {
			return nil, err
		}
		rows, records, err := t.load(ctx, rows, want)
		if err != nil {
			return nil, err
		}
		var searches []driver.Search
		var holding []int
		for i, record := range records {
			letters = append(letters, roles.DeadLetter{Record: record})
			if holdsKey(rows[i], record) {
				search := driver.Search{By: driver.ByParked, Line: rows[i].Line, Key: rows[i].Key, From: rows[i].Seq, Limit: roles.MaxWaiting}
				searches, holding = append(searches, search), append(holding, i)
			}
		}
		counted, err := t.Count(ctx, searches...)
		for n, c := range counted {
			letters[holding[n]].Waiting = c.N
		}
		return letters, err
	})
}

// heads returns those of the rows that are dead and that no other row has parked, by id.
func (t *tx) heads(ctx context.Context, rows []driver.Row) (heads []driver.Row, err error) {
	keys := map[driver.Line][]string{}
	for _, r := range rows {
		if r.Parked {
			keys[r.Line] = append(keys[r.Line], r.Key)
		}
	}
	first := map[driver.Line]map[string]driver.KeyState{}
	for line, names := range keys {
		if first[line], err = t.Keys(ctx, line, "", names); err != nil {
			return nil, err
		}
	}
	for _, r := range rows {
		if isDead(r) && (!r.Parked || first[r.Line][r.Key].Parked == r.Seq) {
			heads = append(heads, r)
		}
	}
	slices.SortFunc(heads, func(a, b driver.Row) int { return byWorkItem(a.ID, b.ID) })
	return heads, nil
}

// holdsKey reports whether the record parks its key, or did so until a Skip began.
func holdsKey(r driver.Row, record *outmill.Record) bool {
	return r.Parked || r.Key != "" && record.LastError == storekit.SkippedError
}

// lockRecord locks a record.
func (t *tx) lockRecord(ctx context.Context, id outmill.WorkItemID) (r driver.Row, record *outmill.Record, err error) {
	r, found, err := t.Lock(ctx, id)
	var records []*outmill.Record
	if err == nil && found {
		_, records, err = t.load(ctx, []driver.Row{r}, everything)
	}
	if err == nil && len(records) == 0 {
		err = outmill.ErrNotFound
	}
	if err != nil {
		return r, nil, err
	}
	return r, records[0], nil
}

// editDead changes a record that is locked. If change returns a record, its payload and metadata are written, and the entry.
func (e *Engine) editDead(ctx context.Context, operation string, id outmill.WorkItemID,
	change func(before *outmill.Record) (*outmill.Record, roles.AuditEntry, error)) error {
	return e.update(ctx, operation, func(ctx context.Context, t *tx) error {
		r, before, err := t.lockRecord(ctx, id)
		if err != nil {
			return err
		}
		after, entry, err := change(before)
		if err != nil || after == nil {
			return err
		}
		if err := t.setsUnreadable(ctx, r, before, after); err != nil {
			return err
		}
		metadata, err := storekit.MetadataText(after.Metadata)
		if err != nil {
			return err
		}
		if err := e.db.Limits().Check(-1, after, metadata); err != nil {
			return err
		}
		r.Size = after.Size()
		if err := t.Replace(ctx, driver.NewRow{Row: r, Record: after, Message: after.MessageID, Metadata: metadata}); err != nil {
			return err
		}
		return t.audit(ctx, entry, 1)
	})
}

// setsUnreadable refuses an edit that would write nothing over what cannot be decoded.
func (t *tx) setsUnreadable(ctx context.Context, r driver.Row, before, after *outmill.Record) error {
	if before.Unreadable == "" {
		return nil
	}
	for _, part := range []struct {
		want    driver.Want
		missing bool
		name    string
	}{{driver.Payload, after.Payload == nil, "payload"}, {driver.Metadata, len(after.Metadata) == 0, "metadata"}} {
		contents, err := t.Load(ctx, []driver.Row{r}, part.want)
		if err != nil {
			return err
		}
		if contents[0].Broken != "" && part.missing {
			return &outmill.InvalidRecordError{Index: -1, Field: part.name, Reason: "cannot be read: set it with the edit"}
		}
	}
	return nil
}

// skipDead removes a dead record and requeues what is parked behind it, in steps. Between two steps the record
// has SkippedError and keeps in Next the time at which all become due.
func (e *Engine) skipDead(ctx context.Context, operation string, id outmill.WorkItemID, nth int,
	check func(*outmill.Record) (roles.AuditEntry, error)) (roles.Skipped, error) {
	skipped, err := valueOf(ctx, e.update, operation, func(ctx context.Context, t *tx) (skipped roles.Skipped, err error) {
		if err := t.lockLineOf(ctx, id); err != nil {
			return skipped, err
		}
		head, record, err := t.lockRecord(ctx, id)
		if err != nil {
			return skipped, err
		}
		entry, err := check(record)
		due, more := t.now, false
		if record.LastError == storekit.SkippedError {
			due = head.Next
		}
		if err == nil && holdsKey(head, record) {
			skipped.Released, more, err = t.release(ctx, head, due, e.config.AtOnce.Requeue(nth))
		}
		if err != nil {
			return skipped, err
		}
		count := skipped.Released
		if more {
			t.rewrite(head, func(r *driver.Row) {
				markSkipped(r)
				r.Next = due
			})
		} else {
			t.remove(head)
			skipped.Done, entry.After.Status = true, roles.AuditDeleted
			count++
		}
		if _, err := t.write(ctx); err != nil {
			return skipped, err
		}
		return skipped, t.audit(ctx, entry, count)
	})
	if skipped.Released > 0 {
		e.wake()
	}
	return skipped, err
}

// lockLineOf locks the line of a record with a key, so that no claim parks a record in the middle of a Skip. As in a claim and in a
// Requeue, the line comes before the rows.
func (t *tx) lockLineOf(ctx context.Context, id outmill.WorkItemID) error {
	rows, err := t.Find(ctx, []outmill.WorkItemID{id})
	if err == nil && len(rows) > 0 && isDead(rows[0]) && rows[0].Key != "" && rows[0].Group != "" {
		err = t.lockLine(ctx, rows[0].Line)
	}
	return err
}

// release requeues the first parked rows behind the head, unless an earlier row of the key is parked.
func (t *tx) release(ctx context.Context, head driver.Row, due driver.Time, limit int) (released int, more bool, err error) {
	states, err := t.Keys(ctx, head.Line, "", []string{head.Key})
	if err != nil || states[head.Key].Parked < head.Seq {
		return 0, false, err
	}
	return t.requeueBehind(ctx, head, head.Seq, due, limit)
}
