package memstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Tx is a transaction. Its changes become visible when it commits. It is safe for concurrent
// use.
type Tx struct {
	db *Database
	// The database's lock guards the following fields.
	rows  []appended
	keys  []storekit.DedupKey
	ended bool
	// over is closed when the transaction has ended.
	over chan struct{}
}

// noted is a remembered dedup key: until is when it is forgotten, and by is the open
// transaction that holds it. first is the record that took it.
type noted struct {
	until time.Time
	by    *Tx
	first outmill.WorkItemID
}

// Begin begins a transaction. End it with Commit or Rollback.
func (d *Database) Begin() *Tx { return &Tx{db: d, over: make(chan struct{})} }

// Commit makes the changes of the transaction visible.
func (t *Tx) Commit() error {
	t.db.mu.Lock()
	woken, err := t.commit()
	t.db.mu.Unlock()
	woken()
	return failed("commit", err)
}

// commit returns a function that wakes the readers.
func (t *Tx) commit() (woken func(), err error) {
	nothing := func() {}
	if t.ended {
		return nothing, errTxEnded
	}
	for _, r := range t.rows {
		if t.db.byID[r.ID] != nil {
			t.rollback()
			return nothing, exists(r.ID)
		}
	}
	t.end(true)
	var topics []string
	for _, r := range t.rows {
		t.db.deliver(r)
		if !slices.Contains(topics, r.Topic) {
			topics = append(topics, r.Topic)
		}
	}
	for _, key := range t.keys {
		seen := t.db.keys[key]
		seen.by = nil
		t.db.keys[key] = seen
	}
	if len(topics) == 0 {
		return nothing, nil
	}
	return func() { t.db.notifier.Notify(topics...) }, nil
}

// Rollback discards the changes of the transaction. After Commit it returns an error and does
// nothing.
func (t *Tx) Rollback() error {
	t.db.mu.Lock()
	defer t.db.mu.Unlock()
	if t.ended {
		return failed("rollback", errTxEnded)
	}
	t.rollback()
	return nil
}

// end ends the transaction's dedup keys, notes and sagas.
func (t *Tx) end(committed bool) {
	t.ended = true
	close(t.over)
	t.db.notes.end(t, committed)
	t.db.sagas.end(t, committed)
}

func (t *Tx) rollback() {
	t.end(false)
	for _, key := range t.keys {
		delete(t.db.keys, key)
	}
}

// WithTx returns a context that carries the transaction: methods that work in transactions
// take part in it. The caller commits or rolls back.
func (s *Store) WithTx(ctx context.Context, tx *Tx) context.Context {
	return storekit.ContextWithTx(ctx, s.db, tx)
}

// TxOf returns the transaction that ctx carries. See outmill.Writer.
func (s *Store) TxOf(ctx context.Context) (any, error) {
	return storekit.TxFromContext(ctx, s.db)
}

// Append writes the records. See outmill.Writer. If another open transaction holds one of the
// dedup keys, Append returns an error: repeat the transaction when the other one has ended.
func (s *Store) Append(ctx context.Context, records ...*outmill.Record) error {
	if _, err := s.TxOf(ctx); err != nil {
		return failed("append", err)
	}
	if err := checkRecords(records); err != nil {
		return failed("append", err)
	}
	return s.inTx(ctx, "append", func(t *Tx, now time.Time) error { return t.append(records, s.options.DedupWindow, now) })
}

func checkRecords(records []*outmill.Record) error {
	if err := storekit.CheckRecords(records, 0); err != nil {
		return err
	}
	for i, r := range records {
		if len(r.Joins) > 0 || !r.WaitsFor.IsZero() {
			return &outmill.InvalidRecordError{Index: i, Field: "joins",
				Reason: "names a join, and this store has none: use a store that has, such as package sqlite"}
		}
	}
	return nil
}

// append adds all records to the transaction, or none.
func (t *Tx) append(records []*outmill.Record, window time.Duration, now time.Time) error {
	a := storekit.NewAppending(records)
	ids := map[outmill.WorkItemID]bool{}
	for i, r := range records {
		if r.DedupKey != "" && !a.Duplicate[i] {
			seen, known := t.db.keys[storekit.DedupKey{Topic: r.Topic, Key: r.DedupKey}]
			if known && seen.by != nil && seen.by != t {
				return fmt.Errorf("dedup key %q of topic %q: %w", r.DedupKey, r.Topic, errBusy)
			}
			a.Duplicate[i] = known && seen.until.After(now)
		}
		if a.Duplicate[i] {
			continue
		}
		taken := ids[a.IDs[i]] || t.db.byID[a.IDs[i]] != nil || slices.ContainsFunc(t.rows, func(r appended) bool { return r.ID == a.IDs[i] })
		if taken {
			return exists(a.IDs[i])
		}
		ids[a.IDs[i]] = true
	}
	a.CreatedAt = stored(now)
	reached := make([]map[string]outmill.WorkItemID, len(records))
	for i, r := range records {
		groups := t.db.readers(r.Topic)
		if len(groups) == 0 {
			groups = []string{""}
		}
		reached[i] = map[string]outmill.WorkItemID{}
		for n, group := range groups {
			reached[i][group] = a.Deliver(i, n, group)
		}
	}
	a.Report()
	for i, r := range records {
		if !a.Duplicate[i] {
			t.note(r, a.IDs[i], reached[i], window, now)
		}
	}
	return nil
}

// note keeps a record until the commit.
func (t *Tx) note(r *outmill.Record, id outmill.WorkItemID, ids map[string]outmill.WorkItemID, window time.Duration, now time.Time) {
	if r.DedupKey != "" {
		key := storekit.DedupKey{Topic: r.Topic, Key: r.DedupKey}
		t.db.keys[key] = noted{until: now.Add(window), by: t, first: id}
		t.keys = append(t.keys, key)
	}
	t.rows = append(t.rows, appended{newRecord(r, now), ids})
}

// appended is a record of an open transaction, and the groups that read its topic at the
// time of the append, each with the id of its record; "" where there were none.
type appended struct {
	*outmill.Record
	ids map[string]outmill.WorkItemID
}

// newRecord returns the record as it is stored before the first claim.
func newRecord(r *outmill.Record, now time.Time) *outmill.Record {
	c := copied(&outmill.Record{
		ID: r.ID, MessageID: r.MessageID, Topic: r.Topic, Key: r.Key, Payload: r.Payload, Metadata: r.Metadata,
		CorrelationID: r.CorrelationID, CausationID: r.CausationID, TenantID: r.TenantID,
		TraceParent: r.TraceParent, TraceState: r.TraceState,
		DueAt: r.DueAt, ExpiresAt: r.ExpiresAt, DedupKey: r.DedupKey,
		Status: outmill.StatusPending, CreatedAt: now,
	})
	if r.Delay > 0 {
		c.DueAt = now.Add(r.Delay)
	}
	if c.DueAt.Before(now) {
		c.DueAt = now
	}
	if r.TimeToLive > 0 {
		c.ExpiresAt = now.Add(r.TimeToLive)
	}
	c.DueAt, c.ExpiresAt = stored(c.DueAt), stored(c.ExpiresAt)
	return c
}

// stored returns the time in the precision of the database.
func stored(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC().Truncate(time.Microsecond)
}

// deliver writes the record once for each group that read its topic when it was appended. If
// there was none, a group that has registered since then gets it.
func (d *Database) deliver(r appended) {
	groups := slices.DeleteFunc(slices.Sorted(maps.Keys(r.ids)), func(group string) bool { return !d.known(group) })
	if len(groups) == 0 {
		groups = d.readers(r.Topic)
	}
	if len(groups) == 0 {
		groups = []string{""}
	}
	for i, group := range groups {
		c := copied(r.Record)
		id, known := r.ids[group]
		switch {
		case known:
			c.ID = id
		case i > 0:
			c.ID = outmill.NewWorkItemID()
		}
		c.Group = group
		d.insert(&row{Record: *c, next: c.DueAt})
	}
}

func exists(id outmill.WorkItemID) error {
	return fmt.Errorf("a record with id %s exists: leave the id empty, and Append makes one", id)
}
