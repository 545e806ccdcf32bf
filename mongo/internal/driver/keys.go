package driver

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill/engine/driver"
)

// beside is what rows a line may have beside those that are ready: come are those whose Wake has come, live the waiting and leased
// ones. Where there are none, no key has some.
type beside struct{ come, live, held, parked bool }

var anything = beside{true, true, true, true}

// The results of keyParts.
const (
	keyLive = iota
	keyCome
	keyHeld
	keyParked
	keyResults
)

// keyParts read what decides the states of keys, and say which results they give.
func (t *tx) keyParts(line driver.Line, keys []string, has beside) (parts []part, give []int) {
	add := func(result int, may bool, filter bson.D, then ...bson.D) {
		if may {
			parts = append(parts, part{t.d.records, append(mongo.Pipeline{{{Key: "$match", Value: filter}}}, then...)})
			give = append(give, result)
		}
	}
	under := make([]string, len(keys))
	for i, key := range keys {
		under[i] = driver.KeyNote(key)
	}
	fields := bson.D{{Key: "$project", Value: ascending("key", "seq", "stage", "wake", "expires", "owner")}}
	// The server skips from name to name (DISTINCT_SCAN) where an index has all fields of the condition and of the order. There may be
	// thousands of rows of a name.
	first := func(of string) []bson.D {
		return []bson.D{
			{{Key: "$sort", Value: ascending(of, "seq")}},
			{{Key: "$group", Value: bson.D{{Key: "_id", Value: "$" + of}, {Key: "seq", Value: bson.D{{Key: "$first", Value: "$seq"}}}}}},
		}
	}
	add(keyLive, has.live, ofLine(line, in("key", keys), in("stage", liveStages)), fields)
	add(keyCome, has.come, ofLine(line, append(t.come(driver.Delayed), in("key", keys))...), fields)
	// Only held rows are under a note.
	add(keyHeld, has.held, ofLine(line, in("under", under)), first("under")...)
	add(keyParked, has.parked, ofLine(line, in("key", keys), isParked), first("key")...)
	return parts, give
}

var (
	liveStages = bson.A{driver.Waiting, driver.Leased}
	isParked   = bson.E{Key: "parked", Value: true}
)

// probes read whether the line has rows of which keyParts tell: live, held and parked ones.
func (t *tx) probes(line driver.Line) (parts []part) {
	for _, filter := range []bson.D{
		ofLine(line, in("stage", liveStages)), ofLine(line, stageIs(driver.Held)), ofLine(line, isParked),
	} {
		parts = append(parts, part{t.d.records, mongo.Pipeline{
			{{Key: "$match", Value: filter}}, {{Key: "$limit", Value: 1}}, {{Key: "$project", Value: idIs(1)}},
		}})
	}
	return parts
}

// placed are the results of keyParts in their places.
func placed(give []int, results [][]bson.Raw) [][]bson.Raw {
	all := make([][]bson.Raw, keyResults)
	for i, result := range give {
		all[result] = results[i]
	}
	return all
}

// none is the state of a key without rows.
var none = driver.KeyState{Due: driver.None, Waiting: driver.None, Held: driver.None, Parked: driver.None}

// statesOf makes the states of keys of the results of keyParts.
func (t *tx) statesOf(keys []string, owner string, results [][]bson.Raw) map[string]driver.KeyState {
	states := make(map[string]driver.KeyState, len(keys))
	for _, key := range keys {
		states[key] = none
	}
	for _, found := range results[:keyHeld] {
		for _, raw := range found {
			r := readRow(raw)
			states[r.Key] = t.stateWith(states[r.Key], &r, owner)
		}
	}
	firsts := func(found []bson.Raw, set func(name string, seq int64)) {
		for _, raw := range found {
			seconds, n := raw.Lookup("seq").Timestamp()
			set(raw.Lookup("_id").StringValue(), seqOf(seconds, n))
		}
	}
	firsts(results[keyHeld], func(name string, seq int64) {
		key, _ := driver.KeyOf(name)
		state := states[key]
		state.Held = seq
		states[key] = state
	})
	firsts(results[keyParked], func(key string, seq int64) {
		state := states[key]
		state.Parked = seq
		states[key] = state
	})
	return states
}

// stateWith is the state of a key that has the row, too.
func (t *tx) stateWith(state driver.KeyState, r *driver.Row, owner string) driver.KeyState {
	over, come, others := r.Expires != 0 && r.Expires <= t.state.Now, r.Wake <= t.state.Now, r.Stage == driver.Leased && r.Owner != owner
	if others && (!come || !over) {
		state.Other = r.Owner
	}
	if come && !over && !others {
		state.Due = min(state.Due, r.Seq)
	}
	if r.Stage == driver.Waiting && !over {
		state.Waiting = min(state.Waiting, r.Seq)
	}
	return state
}

// Keys returns the states of keys of a line.
func (t *tx) Keys(ctx context.Context, line driver.Line, owner string, keys []string) (map[string]driver.KeyState, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	parts, give := t.keyParts(line, keys, anything)
	results, err := t.read(ctx, false, parts...)
	if err != nil {
		return nil, err
	}
	return t.statesOf(keys, owner, placed(give, results)), nil
}

// Whole returns the state of a line.
func (t *tx) Whole(ctx context.Context, line driver.Line, owner string) (driver.KeyState, error) {
	state := none
	alive := bson.E{Key: "$or", Value: bson.A{bson.D{{Key: "expires", Value: nil}}, bson.D{above("expires", t.now())}}}
	others := bson.E{Key: "owner", Value: bson.D{{Key: "$ne", Value: owner}}}
	one := func(sort bson.D, filter ...bson.E) part { return t.partOf(query{ofLine(line, filter...), sort, 1}) }
	results, err := t.read(ctx, false,
		one(nil, stageIs(driver.Leased), others, above("wake", t.now())),
		one(nil, stageIs(driver.Leased), others, upTo("wake", t.now()), alive),
		one(bySeq, stageIs(driver.Waiting), alive),
		one(bySeq, in("stage", bson.A{driver.Waiting, driver.Delayed}), upTo("wake", t.now()), alive),
		one(bySeq, stageIs(driver.Leased), bson.E{Key: "owner", Value: owner}, upTo("wake", t.now()), alive),
	)
	if err != nil {
		return state, err
	}
	for i, found := range results {
		for _, r := range readRows(found) {
			switch {
			case i < 2:
				state.Other = r.Owner
			case i == 2:
				state.Waiting = r.Seq
			default:
				state.Due = min(state.Due, r.Seq)
			}
		}
	}
	return state, nil
}
