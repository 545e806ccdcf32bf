package mongo

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// workbench provides the DeadLetters, Edit, Skip and Audited of roles.Repairs.
type workbench = storekit.WorkbenchEngine

// bench is the store as seen by the workbench.
type bench struct{ finding }

// Letters returns the dead records that no other record has parked.
func (b bench) Letters(ctx context.Context, operation string, ids []outmill.WorkItemID) (letters []roles.DeadLetter, err error) {
	err = b.do(ctx, operation, func(ctx context.Context) error {
		waiting, err := b.headsOf(ctx, uuids(ids))
		if err != nil || len(waiting) == 0 {
			return err
		}
		heads := bson.A{}
		for id := range waiting {
			heads = append(heads, id)
		}
		records, err := b.find(ctx, append(in("_id", heads), bson.E{Key: "stage", Value: storekit.StageDead}), len(heads))
		letters = make([]roles.DeadLetter, len(records))
		for i, r := range records {
			letters[i] = roles.DeadLetter{Record: r, Waiting: waiting[uuid(r.ID)]}
		}
		return err
	})
	return letters, err
}

// headsOf returns those of the dead records that no other record has parked, each with the number
// of records that are parked behind it.
func (s *Store) headsOf(ctx context.Context, ids bson.A) (waiting map[uuid]int, err error) {
	found, err := findAll[struct {
		Key    lineKey        `bson:",inline"`
		ID     uuid           `bson:"_id"`
		Seq    bson.Timestamp `bson:"seq"`
		Parked bool           `bson:"parked"`
		Begun  bool           `bson:"begun"`
	}](ctx, s.records, append(in("_id", ids), bson.E{Key: "stage", Value: storekit.StageDead}),
		first(len(ids), nil).SetProjection(append(ascending("grp", "topic", "key", "seq", "parked"), bson.E{Key: "begun", Value: isSkipped})))
	if err != nil {
		return nil, err
	}
	waiting = map[uuid]int{}
	// Only the first of these records of a key can be its head. The server looks for a parked
	// record before it, and for those behind it.
	firsts := map[lineKey]bson.Timestamp{}
	for _, f := range found {
		if at, is := firsts[f.Key]; f.Parked && (!is || place(f.Seq) < place(at)) {
			firsts[f.Key] = f.Seq
		}
	}
	var parking bson.A
	for _, f := range found {
		switch {
		case f.Key.Key != "" && f.Begun, f.Parked && firsts[f.Key] == f.Seq:
			parking = append(parking, f.ID)
		case !f.Parked:
			waiting[f.ID] = 0
		}
	}
	if len(parking) == 0 {
		return waiting, nil
	}
	heads, err := aggregateAll[struct {
		ID      uuid `bson:"_id"`
		Waiting int  `bson:"waiting"`
	}](ctx, s.records, s.parkingHeads(parking))
	for _, h := range heads {
		waiting[h.ID] = h.Waiting
	}
	return waiting, err
}

// isSkipped says that a skip of a record has begun.
var isSkipped = bson.D{{Key: "$eq", Value: bson.A{"$last_error", literal(storekit.SkippedError)}}}

// parkingHeads counts what is parked behind each of the records. It leaves out a parked record
// behind another one.
func (s *Store) parkingHeads(ids bson.A) driver.Pipeline {
	return driver.Pipeline{
		{{Key: "$match", Value: append(in("_id", ids), bson.E{Key: "stage", Value: storekit.StageDead})}},
		s.parkedOfKey("above", "$lt", 1),
		{{Key: "$match", Value: either(where("above", bson.A{}), where("parked", bson.D{{Key: "$exists", Value: false}}))}},
		s.parkedOfKey("behind", "$gt", roles.MaxWaiting),
		{{Key: "$project", Value: bson.D{{Key: "waiting", Value: bson.D{{Key: "$size", Value: "$behind"}}}}}},
	}
}

// parkedOfKey finds the first records that are parked with the key of a record, before its place
// (by $lt) or behind it (by $gt).
func (s *Store) parkedOfKey(as, where string, limit int) bson.D {
	compare := func(operator, field, name string) bson.D {
		return bson.D{{Key: operator, Value: bson.A{"$" + field, "$$" + name}}}
	}
	return bson.D{{Key: "$lookup", Value: bson.D{
		{Key: "from", Value: s.records.Name()},
		{Key: "let", Value: bson.D{{Key: "g", Value: "$grp"}, {Key: "t", Value: "$topic"}, {Key: "k", Value: "$key"}, {Key: "s", Value: "$seq"}}},
		{Key: "pipeline", Value: some(bson.D{
			{Key: "stage", Value: storekit.StageDead}, {Key: "keyed", Value: true},
			expr(bson.D{{Key: "$and", Value: bson.A{
				compare("$eq", "grp", "g"), compare("$eq", "topic", "t"), compare("$eq", "key", "k"), compare(where, "seq", "s"),
			}}}),
		}, limit, keyOrder, "_id")},
		{Key: "as", Value: as},
	}}}
}

// keyOrder is the order of the records of one key. It names the key, because otherwise the server
// may take the index queue, which has the same order, and read all keys.
var keyOrder = ascending("key", "seq")

// deadDocument is a record as an operator changes it, and the server's time.
type deadDocument struct {
	Record document  `bson:",inline"`
	Now    time.Time `bson:"now"`
}

// deadOf reads a record, whatever its status, or returns outmill.ErrNotFound.
func (s *Store) deadOf(ctx context.Context, id outmill.WorkItemID) (*deadDocument, error) {
	found, err := aggregateAll[deadDocument](ctx, s.records, driver.Pipeline{
		{{Key: "$match", Value: where("_id", uuid(id))}}, {{Key: "$set", Value: bson.D{{Key: "now", Value: "$$NOW"}}}},
	})
	if err == nil && len(found) == 0 {
		err = outmill.ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return &found[0], nil
}

// whileDead selects the record while it is dead.
func (d *document) whileDead() bson.D {
	return append(where("_id", d.ID), bson.E{Key: "stage", Value: storekit.StageDead})
}

// EditDead changes a dead record.
func (b bench) EditDead(ctx context.Context, operation string, id outmill.WorkItemID,
	change func(before *outmill.Record) (*outmill.Record, roles.AuditEntry, error)) error {
	return b.transact(ctx, operation, func(ctx context.Context) error {
		before, err := b.deadOf(ctx, id)
		if err != nil {
			return err
		}
		after, entry, err := change(before.Record.record())
		if err != nil || after == nil {
			return err
		}
		if err := b.edit(ctx, before.Record, after); err != nil {
			return err
		}
		return b.note(ctx, entry, 1)
	})
}

// edit writes the payload and the metadata. The document counts its edits, so that of two edits
// of one state only one is written, also without transactions.
func (s *Store) edit(ctx context.Context, d document, r *outmill.Record) error {
	unchanged := append(d.whileDead(), editedTimes(d.Edits))
	d.setPayload(r.Payload, s.config)
	d.Metadata, d.Size, d.Edits = r.Metadata, r.Size(), d.Edits+1
	if _, err := d.encode(-1); err != nil {
		return err
	}
	fields := bson.D{{Key: "payload", Value: d.Payload}, {Key: "size", Value: d.Size}, {Key: "edits", Value: d.Edits}}
	gone := bson.D{}
	if len(d.Metadata) > 0 {
		fields = append(fields, bson.E{Key: "metadata", Value: d.Metadata})
	} else {
		gone = append(gone, bson.E{Key: "metadata", Value: ""})
	}
	if d.Escaped {
		fields = append(fields, bson.E{Key: "payload_escaped", Value: true})
	} else {
		gone = append(gone, bson.E{Key: "payload_escaped", Value: ""})
	}
	update := set(fields)
	if len(gone) > 0 {
		update = append(update, bson.E{Key: "$unset", Value: gone})
	}
	result, err := s.records.UpdateOne(ctx, unchanged, update)
	if err == nil && result.MatchedCount == 0 {
		err = errContended
	}
	return err
}

// editedTimes selects documents with that number of edits.
func editedTimes(edits int) bson.E {
	if edits == 0 {
		return bson.E{Key: "edits", Value: nil} // null selects a document without the field
	}
	return bson.E{Key: "edits", Value: edits}
}

// SkipDead removes a dead record, or does a step of the release of what it has parked. First of all
// the transaction conflicts with claims of the topic, which would otherwise park records behind the
// ones that come back. Between a read and this write, a claim could make the transaction fail.
func (b bench) SkipDead(ctx context.Context, operation string, id outmill.WorkItemID, nth int,
	check func(*outmill.Record) (roles.AuditEntry, error)) (skipped roles.Skipped, err error) {
	lines, err := b.lineOf(ctx, operation, id)
	if err != nil {
		return skipped, err
	}
	err = b.transact(ctx, operation, func(ctx context.Context) error {
		if err := b.touch(ctx, lines); err != nil {
			return err
		}
		head, err := b.deadOf(ctx, id)
		if err != nil {
			return err
		}
		entry, err := check(head.Record.record())
		if err != nil {
			return err
		}
		if skipped, err = b.skip(ctx, head, b.requeueAtOnce(nth)); err != nil {
			return err
		}
		changed := skipped.Released
		if skipped.Done {
			entry.After.Status = roles.AuditDeleted
			changed++
		}
		return b.note(ctx, entry, changed)
	})
	if err != nil {
		return roles.Skipped{}, err
	}
	if skipped.Released > 0 {
		b.cameBack()
	}
	return skipped, nil
}

// lineOf returns the line of the record, if it may have parked others.
func (s *Store) lineOf(ctx context.Context, operation string, id outmill.WorkItemID) (lines []line, err error) {
	err = s.do(ctx, operation, func(ctx context.Context) error {
		lines, err = findAll[line](ctx, s.records, append(where("_id", uuid(id)), exists("key")...), first(1, nil, "grp", "topic"))
		return err
	})
	return lines, err
}

// skip requeues up to limit records that are parked behind the record. If these were the last, it
// deletes the record. All of them become due at one time, which the record keeps, so that they
// become ready in the order of their places: claims between two steps may park the first ones
// again. Without transactions, each write leaves what a later call of Skip finishes.
func (s *Store) skip(ctx context.Context, head *deadDocument, limit int) (skipped roles.Skipped, err error) {
	d, due := &head.Record, head.Now
	isBegun := d.Key != "" && d.LastError == storekit.SkippedError
	if isBegun {
		due = d.NextAt
	}
	key := lineKey{d.Group, d.Topic, d.Key}
	var behind bson.A
	if d.Parked || isBegun {
		if behind, err = s.parkedBehind(ctx, key, d.Seq, limit); err != nil {
			return skipped, err
		}
	}
	skipped.Done = len(behind) < limit
	if !skipped.Done {
		if _, err = s.records.UpdateOne(ctx, d.whileDead(), pipeline(bson.D{
			{Key: "last_error", Value: storekit.SkippedError}, {Key: "next_at", Value: due},
		}, "parked", "keyed")); err != nil {
			return skipped, err
		}
	}
	if skipped.Released, err = s.alterIn(ctx, requeueing(behind, due), touched{}); err != nil || !skipped.Done {
		return skipped, err
	}
	if _, err = s.records.DeleteOne(ctx, d.whileDead()); err != nil || d.Key == "" {
		return skipped, err
	}
	return skipped, s.openLanes(ctx, map[lineKey]bool{key: true})
}

// parkedBehind returns the first records that are parked with the key behind a place, or none if
// a record before the place is parked.
func (s *Store) parkedBehind(ctx context.Context, key lineKey, seq bson.Timestamp, limit int) (bson.A, error) {
	above, err := s.parkedWith(ctx, key, 1, bson.E{Key: "seq", Value: bson.D{{Key: "$lt", Value: seq}}})
	if err != nil || len(above) > 0 {
		return nil, err
	}
	return s.parkedWith(ctx, key, limit, bson.E{Key: "seq", Value: bson.D{{Key: "$gt", Value: seq}}})
}

// parkedWith returns the first records that are parked with the key.
func (s *Store) parkedWith(ctx context.Context, key lineKey, limit int, more ...bson.E) (bson.A, error) {
	filter := line{key.Group, key.Topic}.keyed(storekit.StageDead, key.Key, append(more, bson.E{Key: "parked", Value: true})...)
	found, err := findAll[candidate](ctx, s.records, filter, first(limit, keyOrder, "_id"))
	return recordIDs(found), err
}
