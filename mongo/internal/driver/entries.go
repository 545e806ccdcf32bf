package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/mongo/internal/mongoerr"
)

// entry is a document of entries. The order of documents that are ids is that of kind and key.
type entry struct {
	ID    entryID `bson:"_id"`
	At    int64   `bson:"at"`
	Made  int64   `bson:"made"`
	Value string  `bson:"value"`
	// DeleteAt is when the server itself deletes the entry: its clock has no other time than At, but for tests.
	DeleteAt *time.Time `bson:"delete_at,omitempty"`
}

// fieldDelete is that of entry.DeleteAt.
const fieldDelete = "delete_at"

func documentOf(e driver.Entry) entry {
	document := entry{ID: idOf(e), At: int64(e.At), Made: int64(e.Made), Value: e.Value}
	if e.Passes && e.At != 0 {
		at := e.At.Of()
		document.DeleteAt = &at
	}
	return document
}

type entryID struct {
	Kind string `bson:"kind"`
	Key  string `bson:"key"`
}

func idOf(e driver.Entry) entryID { return entryID{e.Kind, e.Key} }

func (e *entry) entry() driver.Entry {
	return driver.Entry{Kind: e.ID.Kind, Key: e.ID.Key, At: driver.Time(e.At), Made: driver.Time(e.Made), Value: e.Value}
}

func (t *tx) someEntries(ctx context.Context, stages ...bson.D) ([]driver.Entry, error) {
	found, err := t.all(ctx, part{t.d.entries, stages})
	if err != nil {
		return nil, err
	}
	var entries []driver.Entry
	for _, raw := range found {
		var e entry
		if err := bson.Unmarshal(raw, &e); err != nil {
			return nil, err
		}
		entries = append(entries, e.entry())
	}
	return entries, nil
}

// Put writes entries.
func (t *tx) Put(ctx context.Context, entries ...driver.Entry) error {
	models := make([]mongo.WriteModel, len(entries))
	for i, e := range entries {
		models[i] = mongo.NewReplaceOneModel().SetFilter(idIs(idOf(e))).SetUpsert(true).
			SetReplacement(documentOf(e))
	}
	return t.writeEntries(ctx, models)
}

func (t *tx) writeEntries(ctx context.Context, models []mongo.WriteModel) error {
	if len(models) == 0 {
		return nil
	}
	own, err := t.begin(ctx)
	if err == nil {
		t.wrote = true
		_, err = t.d.entries.BulkWrite(own, models)
	}
	return t.busyAs(err)
}

// busyAs has a conflict in a caller's transaction say so. The server has then aborted it, and only the caller can begin it again. An
// error of a server that is away aborts it, too, but says nothing of another transaction, and keeps the label by which the caller begins
// again.
func (t *tx) busyAs(err error) error {
	if err == nil || !t.callers || !conflicts(err) {
		return err
	}
	t.aborted = true
	if errors.Is(err, errConflict) || mongoerr.HasCode(err, mongoerr.CodeWriteConflict) {
		return fmt.Errorf("%w: %w", driver.ErrBusy, err)
	}
	return err
}

// Take writes those entries that are free. It conflicts with other transactions that write them.
func (t *tx) Take(ctx context.Context, entries ...driver.Entry) ([]bool, error) {
	free := make([]bool, len(entries))
	if len(entries) == 0 {
		return free, nil
	}
	if _, err := t.begin(ctx); err != nil {
		return nil, err
	}
	found, err := t.Entries(ctx, false, entries...)
	if err != nil {
		return nil, err
	}
	taken := make(map[entryID]bool, len(found))
	for _, e := range found {
		taken[idOf(e)] = e.At > t.state.Now
	}
	var written []driver.Entry
	for i, e := range entries {
		if free[i] = !taken[idOf(e)]; free[i] {
			written = append(written, e)
			taken[idOf(e)] = e.At > t.state.Now
		}
	}
	return free, t.Put(ctx, written...)
}

// Add writes an entry that does not exist. It does not wait: the server aborts a transaction that conflicts with an open one.
func (t *tx) Add(ctx context.Context, _ time.Duration, e driver.Entry) (bool, error) {
	if _, err := t.begin(ctx); err != nil {
		return false, err
	}
	found, err := t.Entries(ctx, false, e)
	if err != nil || len(found) > 0 {
		return false, err
	}
	return true, t.insertEntry(ctx, e)
}

// Entries returns entries by their keys. With lock it writes them, so that no other transaction changes them.
func (t *tx) Entries(ctx context.Context, lock bool, keys ...driver.Entry) ([]driver.Entry, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	ids := make([]entryID, len(keys))
	for i, k := range keys {
		ids[i] = idOf(k)
	}
	if lock && !t.reads {
		t.lockedEntries = append(t.lockedEntries, ids...)
		own, err := t.begin(ctx)
		if err == nil {
			err = t.d.lockEntries(own, ids)
		}
		if err != nil {
			return nil, t.busyAs(err)
		}
	}
	return t.someEntries(ctx, bson.D{{Key: "$match", Value: bson.D{in("_id", ids)}}})
}

// lockEntries writes entries, so that no other transaction changes them.
func (d *Driver) lockEntries(own context.Context, ids []entryID) error {
	_, err := d.entries.UpdateMany(own, bson.D{in("_id", ids)}, bson.D{{Key: "$inc", Value: bson.D{{Key: "locks", Value: int64(1)}}}})
	return err
}

// ofKind selects the entries of a kind whose key is at least from, and below the end.
func ofKind(kind, from string, end any) bson.D {
	return bson.D{{Key: "$match", Value: between(kind, from, end)}}
}

func between(kind, from string, end any) bson.D {
	return bson.D{{Key: "_id", Value: bson.D{
		{Key: "$gte", Value: entryID{kind, from}}, {Key: "$lt", Value: bson.D{{Key: "kind", Value: kind}, {Key: "key", Value: end}}},
	}}}
}

var byID = bson.D{{Key: "$sort", Value: ascending("_id")}}

// CountEntries counts the entries of each kind. The server reads one range of the index for each.
func (t *tx) CountEntries(ctx context.Context, kinds ...string) ([]int, error) {
	if len(kinds) == 0 {
		return nil, nil
	}
	ranges := make(bson.A, len(kinds))
	for i, kind := range kinds {
		ranges[i] = between(kind, "", bson.MaxKey{})
	}
	found, err := t.all(ctx, part{t.d.entries, mongo.Pipeline{
		{{Key: "$match", Value: bson.D{{Key: "$or", Value: ranges}}}},
		{{Key: "$group", Value: bson.D{{Key: "_id", Value: "$_id.kind"}, {Key: "n", Value: bson.D{{Key: "$sum", Value: 1}}}}}},
	}})
	if err != nil {
		return nil, err
	}
	counts := make(map[string]int, len(found))
	for _, f := range found {
		n, _ := f.Lookup("n").AsInt64OK()
		counts[f.Lookup("_id").StringValue()] = int(n)
	}
	list := make([]int, len(kinds))
	for i, kind := range kinds {
		list[i] = counts[kind]
	}
	return list, nil
}

// Scan returns entries by a prefix of their keys.
func (t *tx) Scan(ctx context.Context, kind, prefix string) ([]driver.Entry, error) {
	var end any = bson.MaxKey{}
	if last := len(prefix) - 1; last >= 0 && prefix[last] < 0x7f {
		end = prefix[:last] + string(rune(prefix[last]+1))
	}
	entries, err := t.someEntries(ctx, ofKind(kind, prefix, end), byID)
	if end == (bson.MaxKey{}) && prefix != "" {
		entries = withPrefix(entries, prefix)
	}
	return entries, err
}

func withPrefix(entries []driver.Entry, prefix string) (some []driver.Entry) {
	for _, e := range entries {
		if len(e.Key) >= len(prefix) && e.Key[:len(prefix)] == prefix {
			some = append(some, e)
		}
	}
	return some
}

// Range returns the first entries behind a key.
func (t *tx) Range(ctx context.Context, kind, after string, limit int) ([]driver.Entry, error) {
	if limit <= 0 {
		return nil, nil
	}
	return t.someEntries(ctx, ofKind(kind, after+"\x00", bson.MaxKey{}), byID, bson.D{{Key: "$limit", Value: limit}})
}

// Old returns the entries whose time has come. An Update that finds some locks the kind, and reads them again: janitors that delete the
// same entries would conflict, or count them twice.
func (t *tx) Old(ctx context.Context, kind string, until driver.Time, limit int) ([]driver.Entry, error) {
	if limit <= 0 {
		return nil, nil
	}
	due := []bson.D{{{Key: "$match", Value: bson.D{
		{Key: "_id.kind", Value: kind}, {Key: "at", Value: bson.D{{Key: "$gt", Value: int64(0)}, {Key: "$lte", Value: int64(until)}}},
	}}}, {{Key: "$sort", Value: ascending("at", "_id")}}, {{Key: "$limit", Value: limit}}}
	found, err := t.someEntries(ctx, due...)
	if err != nil || len(found) == 0 || t.reads || t.session != nil {
		return found, err
	}
	if _, _, err := t.lockLine(ctx, driver.Ask{Line: driver.Line{Topic: "entries of the kind " + kind}}); err != nil {
		return nil, err
	}
	return t.someEntries(ctx, due...)
}

// Delete deletes entries.
func (t *tx) Delete(ctx context.Context, entries ...driver.Entry) error {
	models := make([]mongo.WriteModel, len(entries))
	for i, e := range entries {
		filter := idIs(idOf(e))
		if e.At != 0 {
			filter = append(filter, bson.E{Key: "at", Value: int64(e.At)})
		}
		models[i] = mongo.NewDeleteOneModel().SetFilter(filter)
	}
	return t.writeEntries(ctx, models)
}

// Bump raises generations, and locks them: two transactions that bump conflict.
func (t *tx) Bump(ctx context.Context, routes, pauses bool) (driver.Generations, error) {
	if _, err := t.lockWithin(ctx, lockOfMeta, false); err != nil {
		return driver.Generations{}, err
	}
	own, err := t.begin(ctx)
	if err != nil {
		return driver.Generations{}, err
	}
	t.wrote = true
	token := bson.NewObjectID()
	set := bson.D{{Key: "bumps", Value: counted("$bumps")}, {Key: "locked", Value: token}}
	if routes {
		set = append(set, bson.E{Key: "routes", Value: nextGeneration("$routes")})
	}
	if pauses {
		set = append(set, bson.E{Key: "pauses", Value: nextGeneration("$pauses")})
	}
	change := t.d.taking(set)
	if t.locked[lockOfMeta] {
		change = mongo.Pipeline{{{Key: "$set", Value: set}}}
	}
	var m meta
	err = t.d.meta.FindOneAndUpdate(own, idIs(metaID), change, options.FindOneAndUpdate().SetReturnDocument(options.After)).Decode(&m)
	if err == nil && m.Locked != token {
		err = errConflict
	}
	if err != nil {
		if conflicts(err) {
			t.waits[lockOfMeta] = true
		}
		return driver.Generations{}, err
	}
	t.noteLocked(lockOfMeta)
	t.state.Generations = driver.Generations{Routes: *m.Routes, Pauses: m.Pauses}
	return t.state.Generations, nil
}

func add(field string, n int64) bson.D { return bson.D{{Key: "$add", Value: bson.A{field, n}}} }

// nextGeneration is that of the clock, so that a database which was set back to a backup gives no generation that a process knows.
func nextGeneration(field string) bson.D {
	now := bson.D{{Key: "$multiply", Value: bson.A{bson.D{{Key: "$toLong", Value: "$$NOW"}}, int64(1000)}}}
	return bson.D{{Key: "$max", Value: bson.A{add(field, 1), now}}}
}
