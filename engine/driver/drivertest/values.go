package drivertest

import (
	"fmt"
	"slices"
	"strings"

	"pgregory.net/rapid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

var (
	groups   = []string{"g", "h"}
	topics   = []string{"orders", "Orders", "o'\"%_日"}
	keyNames = []string{"", "a", "A", "b\x01%_", "日"}
	owners   = []string{outmill.NewOwnerToken().String(), outmill.NewOwnerToken().String()}
	kinds    = []string{"kind", "other kind"}
	stages   = []driver.Stage{
		driver.Ready, driver.Held, driver.Waiting, driver.Delayed, driver.Leased, driver.Processed, driver.Dead,
	}
	parts = []int{0, 0, 3, 63}
	steps = []outmill.WorkItemID{{}, {1}, {2}}
	joins = []outmill.JoinID{{}, {1}, {2}}
)

func pick[T any](w *walk, label string, from []T) T { return rapid.SampledFrom(from).Draw(w.T, label) }

// line is one with rows, or perhaps one without.
func (w *walk) line() driver.Line {
	if len(w.rows) > 0 && !w.chance(4) {
		return w.row().Line
	}
	return w.lineOf(groups)
}

// lineOf is a line of one of these groups.
func (w *walk) lineOf(groups []string) driver.Line {
	return driver.Line{Group: pick(w, "group", groups), Topic: pick(w, "topic", topics), Part: pick(w, "part", parts)}
}

func (w *walk) row() driver.Row { return pick(w, "row", w.rows) }

// someIDs are ids of rows, also of some that are deleted, and one that never was.
func (w *walk) someIDs() []outmill.WorkItemID {
	return w.idsOf(w.ids)
}

// idsOf are some of these ids, and one that never was.
func (w *walk) idsOf(known []outmill.WorkItemID) []outmill.WorkItemID {
	var ids []outmill.WorkItemID
	for range rapid.IntRange(0, 4).Draw(w.T, "ids") {
		if len(known) == 0 || w.chance(6) {
			ids = append(ids, outmill.NewWorkItemID())
			continue
		}
		ids = append(ids, pick(w, "id", known))
	}
	return ids
}

// placeIn is that of a row of the line, or 0: places of several lines cannot be compared.
func (w *walk) placeIn(line driver.Line) int64 {
	rows := slices.DeleteFunc(slices.Clone(w.rows), func(r driver.Row) bool { return r.Line != line })
	if len(rows) == 0 || w.chance(3) {
		return 0
	}
	return pick(w, "row of the line", rows).Seq
}

// time is one that no other time is equal to: hours in the past or the future, so that the clocks of both drivers agree
// on which.
func (w *walk) time() driver.Time {
	w.times++
	return w.base + driver.Time(pick(w, "hours", []int64{-3, -2, -1, 1, 2})*3_600_000_000) + w.times
}

// tied is a time, or one that others have.
func (w *walk) tied() driver.Time {
	if w.chance(3) {
		return w.base + driver.Time(pick(w, "hour", []int64{-1, 1})*3_600_000_000)
	}
	return w.time()
}

func (w *walk) past() driver.Time { w.times++; return w.base - 7_200_000_000 + w.times }

func (w *walk) maybe(t driver.Time) driver.Time {
	if w.chance(2) {
		return 0
	}
	return t
}

// note names one note of a line.
func (w *walk) noteName() string {
	return pick(w, "note", []string{
		driver.KeyNote("a"), driver.KeyNote("A"), driver.KeyNote("日"), driver.PauseNote(7), driver.KeyedPauseNote(7), driver.PauseNote(8),
	})
}

// blocker is one of a note with this name.
func (w *walk) blocker(name string) string {
	if _, paused := driver.ByPause(name); paused {
		return pick(w, "blocker of a pause", []string{name, name, ""})
	}
	return pick(w, "blocker", []string{"", driver.RetryBlocks, owners[0], owners[1], driver.PauseNote(7)})
}

func (w *walk) free() []string {
	free := []string{""}
	for _, b := range []string{driver.RetryBlocks, owners[0], driver.PauseNote(7), driver.KeyedPauseNote(7)} {
		if w.chance(2) {
			free = append(free, b)
		}
	}
	return free
}

// newRow is a row that nobody has changed.
func (w *walk) newRow(line driver.Line) driver.NewRow {
	n := driver.NewRow{Message: fmt.Sprint("message ", len(w.ids)), Metadata: "{}"}
	n.ID, n.Line, n.Key, n.Tenant = outmill.NewWorkItemID(), line, pick(w, "key", keyNames), pick(w, "tenant", []string{"", "acme"})
	n.Created, n.Next, n.Expires = w.past(), w.tied(), w.maybe(w.time())
	n.Step, n.WaitsFor = pick(w, "step", steps), pick(w, "waits for", joins)
	if w.chance(2) {
		n.Stage, n.Wake = driver.Delayed, w.tied()
		n.Next = max(n.Next, n.Wake)
	}
	r := &outmill.Record{
		MessageID: n.Message, Topic: line.Topic, Key: n.Key, TenantID: n.Tenant, WaitsFor: n.WaitsFor,
		Payload: pick(w, "payload", [][]byte{nil, {}, []byte("payload"), {0, 255}, []byte(strings.Repeat("x", 9000))}),
	}
	if w.chance(2) {
		r.CorrelationID, r.CausationID, r.TraceParent, r.TraceState, r.DedupKey = "correlation", "causation", "parent", "state", "dedup"
	}
	if w.chance(2) {
		r.Metadata = map[string]string{"name": "value \"日\"", "": "empty"}
		n.Metadata, _ = storekit.MetadataText(r.Metadata)
	}
	if !n.Step.IsZero() {
		r.Joins = []outmill.JoinID{{9}, {8}}
	}
	n.Record, n.Size = r, r.Size()
	return n
}

// changed is a row in another state.
func (w *walk) changed(r driver.Row) driver.Row {
	r.Stage, r.Wake, r.Owner, r.Worker, r.Under, r.Parked, r.Processed, r.By = pick(w, "stage", stages), 0, "", "", "", false, 0, ""
	r.Next, r.Expires, r.Blocked = w.tied(), w.maybe(w.time()), false
	r.Attempts, r.Claims, r.Expiries = rapid.IntRange(0, 3).Draw(w.T, "attempts"), r.Claims+1, rapid.IntRange(0, 3).Draw(w.T, "expiries")
	switch r.Stage {
	case driver.Held:
		r.Under = w.noteName()
		// The note of a key holds rows of that key only.
		if _, ofKey := driver.KeyOf(r.Under); r.Key != "" && (ofKey || w.chance(2)) {
			r.Under = driver.KeyNote(r.Key)
		} else if ofKey {
			r.Under = driver.PauseNote(7)
		}
	case driver.Waiting, driver.Delayed:
		// Wake is the first of Next and Expires.
		r.Wake = w.tied()
		r.Next = max(r.Next, r.Wake)
	case driver.Leased:
		r.Wake, r.Owner, r.Worker = w.time(), pick(w, "owner", owners), pick(w, "worker", []string{"", "host:1"})
	case driver.Processed:
		r.Processed, r.By = w.past(), pick(w, "by", []string{"", "host:1"})
	case driver.Dead:
		r.Parked = w.chance(2)
	case driver.Ready:
	}
	if (r.Stage == driver.Ready || r.Stage == driver.Delayed) && w.chance(6) {
		r.Group = ""
	}
	if w.chance(2) {
		text := pick(w, "error", []string{"", "boom", "日\n"})
		r.Error = &text
	}
	r.Tried = pick(w, "tried", []string{"", "first\n", strings.Repeat("日", 900) + "\n"})
	return r
}
