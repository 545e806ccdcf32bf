package engine

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

var _ storekit.DedupKeys = (*Engine)(nil)

// Append writes all the records or none. See outmill.Writer.
func (e *Engine) Append(ctx context.Context, records ...*outmill.Record) error {
	const operation = "append"
	caller, err := e.db.TxOf(ctx)
	if err == nil {
		err = storekit.CheckRecords(records, e.config.MaxPayload)
	}
	if err != nil {
		return e.explain(ctx, operation, err)
	}
	if len(records) == 0 {
		return e.explain(ctx, operation, e.life.Usable(ctx))
	}
	a := &appending{Appending: storekit.NewAppending(records)}
	// Steps are attached to their joins after the insert.
	steps := slices.ContainsFunc(records, func(r *outmill.Record) bool { return len(r.Joins) > 0 })
	own := e.own(ctx, e.db.Update, driver.Begin{Durable: true, Inserts: !steps})
	within := e.db.Within
	if in, ok := e.db.(driver.AppendWithin); ok && !steps {
		within = in.AppendWithin
	}
	err = e.inTxOf(ctx, operation, within, func(ctx context.Context, t *tx) error {
		// A driver may have to poll for the commit.
		if caller != nil && e.notifier.HasListeners() {
			t.OnCommit(func() {
				if topics, appended := a.Topics(); appended {
					e.notifier.Notify(topics...)
				}
			})
		}
		if err := t.sameFair(ctx); err != nil {
			return err
		}
		return a.run(ctx, t)
	}, own)
	if err != nil {
		return err
	}
	a.Finish(ctx, e, caller != nil, e.log, e.notifier)
	return nil
}

// appending is one call of Append.
type appending struct{ *storekit.Appending }

func (a *appending) run(ctx context.Context, t *tx) error {
	if err := a.deduplicate(ctx, t); err != nil {
		return err
	}
	if err := a.checkSteps(ctx, t); err != nil {
		return err
	}
	routes, err := t.routing(ctx)
	if err != nil {
		return err
	}
	fair, err := t.fair(ctx)
	if err != nil {
		return err
	}
	rows, err := a.rows(t, routes, fair)
	if err != nil {
		return err
	}
	if err := t.insert(ctx, rows); err != nil {
		return err
	}
	a.CreatedAt = t.State().Now.Of()
	return a.attach(ctx, t, rows)
}

// checkSteps refuses records that cannot be steps of their joins.
func (a *appending) checkSteps(ctx context.Context, t *tx) error {
	var records []*outmill.Record
	for i, r := range a.Records {
		if !a.Duplicate[i] && len(r.Joins) > 0 {
			records = append(records, r)
		}
	}
	return checkSteps(records, func(ids []outmill.JoinID) ([]*storekit.JoinState, error) { return t.joinsToFill(ctx, ids) })
}

// dedupKind is the kind of the entries of dedup keys. At is the end of the window, Value the id of the record.
const dedupKind = "dedup"

// deduplicate takes the dedup keys. The records whose keys are taken are duplicates.
func (a *appending) deduplicate(ctx context.Context, t *tx) error {
	if len(a.First) == 0 {
		return nil
	}
	keys := slices.SortedFunc(maps.Keys(a.First), func(x, y storekit.DedupKey) int {
		return cmp.Or(cmp.Compare(x.Topic, y.Topic), cmp.Compare(x.Key, y.Key))
	})
	until := t.after(t.e.config.DedupWindow)
	free, err := t.Take(ctx, mapped(keys, func(key storekit.DedupKey) driver.Entry {
		return driver.Entry{Kind: dedupKind, Key: joined(key.Topic, key.Key), At: until, Value: a.IDs[a.First[key]].String(), Passes: true}
	})...)
	for n, key := range keys {
		a.Duplicate[a.First[key]] = err == nil && !free[n]
	}
	return err
}

// DedupKey returns a dedup key that the store remembers. See storekit.DedupKeys.
func (e *Engine) DedupKey(ctx context.Context, topic, key string) (storekit.DedupInfo, error) {
	view := e.checked(storekit.CheckDedupKey(topic, key), e.view)
	return valueOf(ctx, view, "get dedup key", func(ctx context.Context, t *tx) (found storekit.DedupInfo, err error) {
		entry, err := t.entry(ctx, false, dedupKind, joined(topic, key))
		switch {
		case err != nil:
			return found, err
		case entry == nil || entry.At <= t.now:
			return found, outmill.ErrNotFound
		}
		found = storekit.DedupInfo{Topic: topic, Key: key, ExpiresAt: entry.At.Of()}
		found.Record, err = outmill.ParseWorkItemID(entry.Value)
		return found, err
	})
}

// insert inserts the rows of messages.
func (t *tx) insert(ctx context.Context, messages []driver.NewRow) error {
	if in, once := t.Tx.(driver.MessageInserter); once {
		return in.InsertMessages(ctx, messages)
	}
	return t.Insert(ctx, driver.WithCopies(messages))
}

// rows returns a row for each record: of the first group that reads it, or without a group.
func (a *appending) rows(t *tx, routes *storekit.RoutingTable, fair *fairTopics) ([]driver.NewRow, error) {
	limits := t.e.db.Limits()
	texts, err := a.Metadata(limits.Check)
	if err != nil {
		return nil, err
	}
	var rows []driver.NewRow
	readers := map[string][]string{}
	for i, r := range a.Records {
		if a.Duplicate[i] {
			continue
		}
		groups, known := readers[r.Topic]
		if !known {
			if groups = routes.Of(r.Topic); len(groups) == 0 {
				groups = []string{""}
			}
			readers[r.Topic] = groups
		}
		if rows == nil {
			rows = make([]driver.NewRow, 0, len(a.Records))
		}
		part := 0
		if fair.ServesTurns(r.Topic) {
			part = storekit.PartOf(r.Topic, r.TenantID)
		}
		a.DeliverAll(i, groups)
		row := driver.NewRow{
			Record: r, Message: r.MessageID, Metadata: texts[i], Made: r.ID.IsZero(), CopyTo: groups[1:],
		}
		if r.MessageID == "" {
			row.Message = a.IDs[i].String()
		}
		row.ID, row.Line = a.IDs[i], driver.Line{Group: groups[0], Topic: r.Topic, Part: part}
		if len(r.Joins) > 0 {
			row.Step = row.ID
		}
		rows = append(rows, t.newRow(row))
	}
	return rows, nil
}

// newRow sets the state of a new row.
func (t *tx) newRow(n driver.NewRow) driver.NewRow {
	r := n.Record
	n.Key, n.Tenant, n.WaitsFor, n.Created, n.Next = r.Key, r.TenantID, r.WaitsFor, t.now, t.now
	n.Size = r.Size() - len(r.MessageID) + len(n.Message)
	switch {
	case r.Delay > 0:
		n.Next = t.after(r.Delay)
	case !r.DueAt.IsZero():
		n.Next = driver.Time(r.DueAt.UnixMicro())
	}
	switch {
	case r.TimeToLive > 0:
		n.Expires = t.after(r.TimeToLive)
	case !r.ExpiresAt.IsZero():
		n.Expires = driver.Time(r.ExpiresAt.UnixMicro())
	}
	if n.Next > t.now {
		wait(&n.Row, driver.Delayed)
	}
	return n
}
