package mongo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Append writes all the records or none. See outmill.Writer.
func (s *Store) Append(ctx context.Context, records ...*outmill.Record) error {
	const operation = "append"
	session, err := s.sessionOf(ctx)
	if err != nil {
		return s.explain(ctx, operation, err)
	}
	if err := storekit.CheckRecords(records, s.config.MaxPayload); err != nil {
		return s.explain(ctx, operation, err)
	}
	if len(records) == 0 {
		return s.explain(ctx, operation, s.usable(ctx))
	}
	a := newAppending(s, records)
	if err := a.check(); err != nil {
		return s.explain(ctx, operation, err)
	}
	switch {
	case session != nil:
		err = s.within(ctx, operation, session, a.run)
	case a.isOneDocument() || s.config.WithoutTransactions:
		// Few topics have several groups, and one document is atomic without a transaction.
		// doOnce never repeats an insert that may have taken effect.
		err = s.doOnce(ctx, operation, a.runAlone)
	default:
		err = s.transact(ctx, operation, a.run)
	}
	if err != nil {
		return err
	}
	a.Finish(ctx, s, session != nil, s.logger, &s.notifier)
	return nil
}

// within runs fn in the caller's transaction, which allows one operation at a time.
func (s *Store) within(ctx context.Context, operation string, session *driver.Session, fn func(ctx context.Context) error) error {
	err := s.usable(ctx)
	if err == nil {
		var unlock func()
		if unlock, err = s.inUse.Lock(ctx, session); err == nil {
			defer unlock()
			err = ended(fn(driver.NewSessionContext(ctx, session)))
		}
	}
	return s.explain(ctx, operation, err)
}

// appending is the work of one Append. It may run more than once, and changes no record before
// Report.
type appending struct {
	*storekit.Appending
	s *Store
}

func newAppending(s *Store, records []*outmill.Record) *appending {
	return &appending{storekit.NewAppending(records), s}
}

// check refuses records that need a feature which this store or its Config does not have.
func (a *appending) check() error {
	for i, r := range a.Records {
		switch {
		case len(r.Joins) > 0 && a.s.config.WithoutTransactions:
			return &outmill.InvalidRecordError{Index: i, Field: "joins",
				Reason: "need transactions, and the store was made with WithoutTransactions"}
		case r.DedupKey != "" && a.s.config.WithoutTransactions:
			return &outmill.InvalidRecordError{Index: i, Field: "dedup key",
				Reason: "needs transactions, and the store was made with WithoutTransactions"}
		}
	}
	return nil
}

func (a *appending) isOneDocument() bool {
	return len(a.Records) == 1 && len(a.First) == 0 && len(a.Records[0].Joins) == 0
}

// runAlone writes without a transaction, except for a single record that several groups read.
func (a *appending) runAlone(ctx context.Context) error {
	found, err := a.s.loadState(ctx)
	if err != nil {
		return err
	}
	if len(found.table().Of(a.Records[0].Topic)) > 1 && !a.s.config.WithoutTransactions {
		return a.s.once(ctx, a.run)
	}
	return a.insert(ctx, found)
}

func (a *appending) run(ctx context.Context) error {
	if err := a.checkSteps(ctx); err != nil {
		return err
	}
	return a.runUnchecked(ctx)
}

// runUnchecked writes the records. The caller has checked the steps.
func (a *appending) runUnchecked(ctx context.Context) error {
	found, err := a.s.loadState(ctx)
	if err != nil {
		return err
	}
	if len(a.First) > 0 {
		if err := a.deduplicate(ctx, found.Now); err != nil {
			return err
		}
	}
	if err := a.insert(ctx, found); err != nil {
		return err
	}
	return a.attach(ctx, found.table())
}

func (a *appending) insert(ctx context.Context, found *state) error {
	a.CreatedAt = found.Now
	documents, err := a.documents(found.table(), found.Now)
	if err != nil || len(documents) == 0 {
		return err
	}
	if session := driver.SessionFromContext(ctx); session != nil && session.TransactionRunning() {
		return a.s.insertRaw(ctx, documents)
	}
	_, err = a.s.records.InsertMany(ctx, documents)
	if err != nil && a.s.config.WithoutTransactions {
		a.takeBack(ctx, documents, err)
	}
	return err
}

// takeBack deletes the documents that were inserted before the one that failed. Without
// transactions, an append cannot do more.
func (a *appending) takeBack(ctx context.Context, documents []any, err error) {
	var failed driver.BulkWriteException
	if !errors.As(err, &failed) || len(failed.WriteErrors) == 0 {
		return
	}
	var ids bson.A
	for _, d := range documents[:failed.WriteErrors[0].Index] {
		ids = append(ids, d.(bson.Raw).Lookup("_id"))
	}
	if len(ids) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortWithin)
	defer cancel()
	_, _ = a.s.records.DeleteMany(ctx, in("_id", ids))
}

// documents returns the documents to insert: one for each group of each record, or one that waits
// for a group.
func (a *appending) documents(table *storekit.RoutingTable, now time.Time) ([]any, error) {
	var list []any
	var last *document
	groups := map[string][]string{}
	add := func(i int, d document) error {
		raw, err := d.encode(i)
		if err != nil {
			return err
		}
		list = append(list, raw)
		last = &d
		return nil
	}
	for i, r := range a.Records {
		if a.Duplicate[i] {
			continue
		}
		if _, known := groups[r.Topic]; !known {
			groups[r.Topic] = table.Of(r.Topic)
		}
		d := documentOf(r, a.IDs[i], now)
		d.setPayload(r.Payload, a.s.config)
		d.Generation = table.Generation
		if a.s.ServesTurns(r.Topic) {
			d.Turn = turnOf(r.TenantID)
		}
		for n, name := range groups[r.Topic] {
			d.Group, d.ID = reader(name), uuid(a.Deliver(i, n, name))
			if d.Turn != 0 && d.Stage == storekit.StageReady {
				d.Stage = stageInTurn
			}
			if err := add(i, d); err != nil {
				return nil, err
			}
		}
		if len(groups[r.Topic]) == 0 {
			a.Deliver(i, 0, "")
			if err := add(i, d); err != nil {
				return nil, err
			}
		}
	}
	if last != nil {
		last.Last = true
		last.Wakes = wakes(storekit.TopicsOf(a.Records))
		raw, err := bson.Marshal(last)
		if err != nil {
			return nil, err
		}
		list[len(list)-1] = bson.Raw(raw)
	}
	return list, nil
}

// maxWakes bounds, in bytes, the names of topics in the last document of an append.
const maxWakes = 4096

// wakes returns the topics that the change stream reports, if there are more than the topic of
// the document itself. An empty name stands for any topic.
func wakes(topics []string) []string {
	size := 0
	for _, topic := range topics {
		size += len(topic)
	}
	switch {
	case len(topics) == 0 || size > maxWakes:
		return []string{""}
	case len(topics) == 1:
		return nil
	}
	return topics
}

// encode refuses a document that is too large. index is that of the record in its call, or -1.
func (d document) encode(index int) (bson.Raw, error) {
	raw, err := bson.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("record %d: %w", index, err)
	}
	if len(raw) > maxDocument-documentSlack {
		return nil, &outmill.InvalidRecordError{Index: index, Field: "size",
			Reason: fmt.Sprintf("is %d bytes as a document: MongoDB takes at most %d, of which %d are for fields that are set later",
				len(raw), maxDocument, documentSlack)}
	}
	return raw, nil
}

// documentSlack leaves room for fields that are set later, such as the last error and the owner.
const documentSlack = 64 << 10

func documentOf(r *outmill.Record, id outmill.WorkItemID, now time.Time) document {
	d := document{
		ID: uuid(id), Topic: r.Topic, Key: r.Key, Stage: storekit.StageReady, Status: outmill.StatusPending, Open: true, Keyed: r.Key != "",
		CreatedAt: now, Size: r.Size(),
		MessageID: r.MessageID, CorrelationID: r.CorrelationID, CausationID: r.CausationID, TenantID: r.TenantID,
		TraceParent: r.TraceParent, TraceState: r.TraceState, DedupKey: r.DedupKey, Metadata: r.Metadata,
	}
	if d.MessageID == "" {
		d.MessageID = id.String()
		d.Size += len(d.MessageID)
	}
	if len(r.Joins) > 0 {
		d.Step, d.Joined = uuid(id), uuid(id)
		for _, join := range r.Joins {
			d.Joins = append(d.Joins, uuid(join))
		}
	}
	if d.WaitsFor = uuid(r.WaitsFor); !d.WaitsFor.IsZero() {
		d.Joined = d.WaitsFor
	}
	d.DueAt = dueOf(r, now)
	d.NextAt = d.DueAt
	if d.DueAt.After(now) {
		d.Stage, d.AvailableAt = storekit.StageDelayed, d.DueAt
	}
	switch {
	case r.TimeToLive > 0:
		d.ExpiresAt = now.Add(ceil(r.TimeToLive))
	case !r.ExpiresAt.IsZero():
		d.ExpiresAt = ceilTime(r.ExpiresAt)
	}
	return d
}

func dueOf(r *outmill.Record, now time.Time) time.Time {
	switch {
	case r.Delay > 0:
		return now.Add(ceil(r.Delay))
	case r.DueAt.IsZero():
		return now
	}
	return ceilTime(r.DueAt)
}

func ceilTime(t time.Time) time.Time {
	whole := t.Truncate(time.Millisecond)
	if whole.Before(t) {
		whole = whole.Add(time.Millisecond)
	}
	return whole
}

// dedupKey is a document of the dedup collection.
type dedupKey struct {
	ID        storekit.DedupKey `bson:"_id"`
	ExpiresAt time.Time         `bson:"expires_at"`
	// First is the id of the record that took the key.
	First uuid `bson:"first_id"`
}

// deduplicate inserts the dedup keys that are free. It reads before it writes, because an error
// of the server ends the transaction. If another transaction inserts a key in between, that is a
// write conflict, and the transaction is repeated.
func (a *appending) deduplicate(ctx context.Context, now time.Time) error {
	wanted := make(bson.A, 0, len(a.First))
	for key, i := range a.First {
		a.Duplicate[i] = false
		wanted = append(wanted, key)
	}
	cursor, err := a.s.dedup.Find(ctx, in("_id", wanted))
	if err != nil {
		return err
	}
	var found []dedupKey
	if err := cursor.All(ctx, &found); err != nil {
		return err
	}
	until := now.Add(ceil(a.s.config.DedupWindow))
	seen := map[storekit.DedupKey]bool{}
	var over []driver.WriteModel
	for _, k := range found {
		seen[k.ID] = true
		if k.ExpiresAt.After(now) {
			a.Duplicate[a.First[k.ID]] = true
			continue
		}
		over = append(over, driver.NewUpdateOneModel().SetFilter(where("_id", k.ID)).
			SetUpdate(set(bson.D{{Key: "expires_at", Value: until}, {Key: "first_id", Value: uuid(a.IDs[a.First[k.ID]])}})))
	}
	var fresh []any
	for key, i := range a.First {
		if !seen[key] {
			fresh = append(fresh, dedupKey{key, until, uuid(a.IDs[i])})
		}
	}
	if len(over) > 0 {
		_, err = a.s.dedup.BulkWrite(ctx, over)
	}
	if err == nil && len(fresh) > 0 {
		_, err = a.s.dedup.InsertMany(ctx, fresh)
	}
	return err
}
