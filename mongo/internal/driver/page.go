package driver

import (
	"cmp"
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/x/bsonx/bsoncore"

	"github.com/outmill/outmill/engine/driver"
)

// noteKey names a note.
type noteKey struct {
	driver.Line
	name string
}

func lineID(l driver.Line) bson.D {
	return bson.D{{Key: "grp", Value: l.Group}, {Key: "topic", Value: l.Name()}}
}

func noteID(l driver.Line, name string) bson.D {
	return append(lineID(l), bson.E{Key: "name", Value: name})
}

func notesOf(l driver.Line) bson.D {
	return bson.D{{Key: "_id.grp", Value: l.Group}, {Key: "_id.topic", Value: l.Name()}}
}

// blockedByPause selects the notes of which a pause is the reason.
var blockedByPause = bson.E{Key: "blocker", Value: bson.D{{Key: "$gte", Value: "p"}, {Key: "$lt", Value: "r"}}}

func readNote(raw bson.Raw) (n driver.Note) {
	var f fields
	each(raw, func(field string, v bsoncore.Value) {
		switch field {
		case "_id":
			id, _ := v.DocumentOK()
			group, topic := "", ""
			each(id, func(field string, v bsoncore.Value) {
				f.text(field, v, map[string]*string{"grp": &group, "topic": &topic, "name": &n.Name}[field])
			})
			n.Line = driver.LineOf(group, topic)
		case "blocker":
			f.text(field, v, &n.Blocker)
		case "head":
			n.Head, _ = wholeNumber(v)
		case "look_at":
			f.time(field, v, &n.LookAt)
		case "looks":
			f.number(field, v, &n.Looks)
		}
	})
	return n
}

// looks selects the notes that a claim looks at, by one filter for each index: the server would use none of them for an $or.
func (t *tx) looks(of bson.D, ask driver.Ask, lines ...driver.Line) []bson.D {
	filters := []bson.D{
		append(slices.Clone(of), in("blocker", append([]string{}, ask.Free...))),
		append(slices.Clone(of), above("look_at", 0), t.passed("look_at")),
	}
	if ask.Keys && len(lines) > 0 {
		pauses := make(bson.A, len(lines))
		for i, line := range lines {
			pauses[i] = bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: noteID(line, "q")}, {Key: "$lt", Value: noteID(line, "r")}}}}
		}
		filters = append(filters, bson.D{{Key: "$or", Value: pauses}})
	}
	return filters
}

// notesAmong returns the first notes of several results.
func notesAmong(results [][]bson.Raw, limit int) (notes []driver.Note) {
	seen := map[noteKey]bool{}
	for _, raw := range slices.Concat(results...) {
		n := readNote(raw)
		if key := (noteKey{n.Line, n.Name}); !seen[key] {
			seen[key] = true
			notes = append(notes, n)
		}
	}
	slices.SortFunc(notes, func(a, b driver.Note) int { return cmp.Or(cmp.Compare(a.Head, b.Head), cmp.Compare(a.Name, b.Name)) })
	return notes[:min(len(notes), limit)]
}

// Page returns a page of a line. What it reads is of one moment, the snapshot of the transaction, or of one that only reads.
func (t *tx) Page(ctx context.Context, ask driver.Ask) (driver.Page, error) {
	if first := t.first(); first.read && first.Ask != nil && same(*first.Ask, ask) {
		return first.page, nil
	}
	return t.pageOf(ctx, ask, false)
}

func (t *tx) pageOf(ctx context.Context, ask driver.Ask, state bool) (p driver.Page, err error) {
	if ask.Lock && !t.reads {
		free, waited, err := t.lockLine(ctx, ask)
		if err != nil || !free {
			if state && err == nil {
				_, err = t.read(ctx, true)
			}
			return driver.Page{Busy: true, Now: t.state.Now}, err
		}
		state = state || waited
	}
	if t.session == nil && t.view == nil {
		if t.view, err = t.d.moment(); err != nil {
			return p, err
		}
		defer func() {
			t.d.endSession(ctx, t.view, err)
			t.view = nil
		}()
	}
	if state {
		// The time is that of the server while it reads.
		t.state.Now = 0
	}
	has, err := t.readPage(ctx, ask, state, &p)
	if err != nil {
		return p, err
	}
	p.Now = t.state.Now
	if len(p.Due) > 0 {
		return p, nil
	}
	return p, t.readHeld(ctx, ask, &p, has)
}

// lockLine writes the document of the line in the transaction, once. So the transaction conflicts with each other one that has locked
// the line since the moment that it sees. waited says that this may be later than the state.
func (t *tx) lockLine(ctx context.Context, ask driver.Ask) (free, waited bool, err error) {
	if t.locked[ask.Line] {
		return true, false, nil
	}
	if free, err = t.mayLock(ctx, ask); err != nil || !free {
		return false, false, err
	}
	own, err := t.begin(ctx)
	if err != nil {
		return false, false, err
	}
	result, err := t.d.lines.UpdateOne(own, idIs(lineID(ask.Line)), t.d.lockOfLine(), options.UpdateOne().SetUpsert(true))
	if err = conflictOfLock(err); err != nil {
		// The server has aborted the transaction. The next try leaves the line out, or waits for it first.
		if conflicts(err) && ask.Pass {
			t.busy[ask.Line] = true
		} else if conflicts(err) {
			t.waits[ask.Line] = true
		}
		return false, false, err
	}
	switch {
	case result.ModifiedCount+result.UpsertedCount > 0:
		t.noteLocked(ask.Line)
		return true, true, t.hold(ctx)
	case ask.Pass:
		return false, false, nil
	}
	t.waits[ask.Line] = true
	return false, false, errConflict
}

// lockOfLine is the write that locks a line.
func (d *Driver) lockOfLine() mongo.Pipeline {
	return d.taking(bson.D{{Key: "claims", Value: counted("$claims")}})
}

// counted is one more than the field has.
func counted(field string) bson.D {
	return bson.D{{Key: "$add", Value: bson.A{bson.D{{Key: "$ifNull", Value: bson.A{field, int64(0)}}}, int64(1)}}}
}

// conflictOfLock takes it as a conflict that another transaction has made the document of the line.
func conflictOfLock(err error) error {
	if mongo.IsDuplicateKeyError(err) {
		return errConflict
	}
	return err
}

// mayLock locks the line within this process, once, unless another transaction is known to have it.
func (t *tx) mayLock(ctx context.Context, ask driver.Ask) (free bool, err error) {
	switch {
	case t.locked[ask.Line]:
		return true, nil
	case ask.Pass && t.busy[ask.Line]:
		return false, nil
	}
	return t.lockWithin(ctx, ask.Line, ask.Pass)
}

func (t *tx) noteLocked(line driver.Line) {
	if t.locked == nil {
		t.locked = map[driver.Line]bool{}
	}
	t.locked[line] = true
}

// readPage reads all of a page that does not depend on another part, and which rows the line has beside.
func (t *tx) readPage(ctx context.Context, ask driver.Ask, state bool, p *driver.Page) (has beside, err error) {
	var parts []part
	add := func(s driver.Search) (count int) {
		for _, q := range t.queries(s) {
			parts = append(parts, t.partOf(q))
			count++
		}
		return count
	}
	due := 0
	for _, s := range ask.Searches() {
		due += add(s)
	}
	unrouted := add(driver.Search{By: driver.ByUnrouted, Line: ask.Line, Limit: 1})
	filters := t.looks(notesOf(ask.Line), ask, ask.Line)
	for _, filter := range filters {
		parts = append(parts, part{t.d.notes, mongo.Pipeline{
			{{Key: "$match", Value: filter}}, {{Key: "$sort", Value: ascending("head", "_id.name")}}, {{Key: "$limit", Value: ask.Limit}},
		}})
	}
	if ask.Keys {
		add(driver.Search{By: driver.ByStage, Line: ask.Line, Stage: driver.Ready, Limit: ask.Limit})
		parts = append(parts, t.probes(ask.Line)...)
	}
	results, err := t.read(ctx, state, parts...)
	if err != nil {
		return has, err
	}
	for _, found := range results[:due] {
		p.Due = append(p.Due, readRows(found)...)
	}
	if len(p.Due) > 0 {
		return has, nil
	}
	results = results[due:]
	p.Unrouted = len(results[unrouted-1]) > 0
	results = results[unrouted:]
	p.Notes = notesAmong(results[:len(filters)], ask.Limit)
	if ask.Keys {
		results = results[len(filters):]
		p.Ready = readRows(results[0])
		// Ask.Due has found none whose Wake has come.
		has = beside{ask.Due == 0, len(results[1]) > 0, len(results[2]) > 0, len(results[3]) > 0}
	}
	return has, nil
}

// readHeld reads the rows under the notes of the page, and the states of the keys.
func (t *tx) readHeld(ctx context.Context, ask driver.Ask, p *driver.Page, has beside) error {
	keys := keysOfPage(p)
	var parts []part
	share := ask.Share(p.Notes)
	for _, n := range p.Notes {
		limit := ask.Limit
		if _, ofKey := driver.KeyOf(n.Name); ofKey {
			limit = share
		}
		parts = append(parts, t.partOf(query{ofLine(ask.Line, bson.E{Key: "under", Value: n.Name}, stageIs(driver.Held)), bySeq, limit}))
	}
	held, give := len(parts), []int(nil)
	if ask.Keys && len(keys) > 0 {
		var ofKeys []part
		ofKeys, give = t.keyParts(ask.Line, keys, has)
		parts = append(parts, ofKeys...)
	}
	results, err := t.readInPieces(ctx, parts)
	if err != nil {
		return err
	}
	for _, found := range results[:held] {
		p.Held = append(p.Held, readRows(found)...)
	}
	if !ask.Keys || len(keys) == 0 && len(p.Held) == 0 {
		return nil
	}
	p.Keys = map[string]driver.KeyState{}
	if len(keys) > 0 {
		p.Keys = t.statesOf(keys, ask.Owner, placed(give, results[held:]))
	}
	// The rows under the notes of pauses may have other keys.
	var others []string
	for _, key := range keysOfPage(p) {
		if !slices.Contains(keys, key) {
			others = append(others, key)
		}
	}
	more, err := t.Keys(ctx, ask.Line, ask.Owner, others)
	for key, state := range more {
		p.Keys[key] = state
	}
	if len(p.Keys) == 0 {
		p.Keys = nil
	}
	return err
}

// partsAtOnce is less than the number of stages that a pipeline may have.
const partsAtOnce = 500

// readInPieces is read for any number of parts. A transaction and a snapshot see one moment in all commands.
func (t *tx) readInPieces(ctx context.Context, parts []part) (results [][]bson.Raw, err error) {
	for piece := range slices.Chunk(parts, partsAtOnce) {
		found, err := t.read(ctx, false, piece...)
		if err != nil {
			return nil, err
		}
		results = append(results, found...)
	}
	return results, nil
}

func keysOfPage(p *driver.Page) (keys []string) {
	seen := map[string]bool{"": true}
	add := func(key string) {
		if !seen[key] {
			seen[key] = true
			keys = append(keys, key)
		}
	}
	for _, n := range p.Notes {
		if key, ok := driver.KeyOf(n.Name); ok {
			add(key)
		}
	}
	for _, r := range slices.Concat(p.Held, p.Ready) {
		add(r.Key)
	}
	return keys
}
