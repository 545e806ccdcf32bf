package driver

import (
	"context"
	"math"
	"strings"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// The values of the columns slot and timer that are no stages. See schema/0001_tables.sql.
const (
	slotPaused = 7
	slotParked = 8

	timerLease     = 1
	timerProcessed = 2
	timerExpiry    = 3
)

// Each search reads one index in its order, and names it, so that the server scans no table, whatever its statistics are.
const (
	rowsBy = `SELECT ` + rowColumns + ` FROM {p:records} AS r FORCE INDEX `

	sqlBySlot = rowsBy + `(line) WHERE r.grp = ? AND r.topic = ? AND r.slot = ? ORDER BY r.wake_at, r.seq LIMIT ?`
	sqlComing = rowsBy + `(line) WHERE r.grp = ? AND r.topic = ? AND r.slot = ? AND r.wake_at <= ? ORDER BY r.wake_at, r.seq LIMIT ?`
	sqlLater  = rowsBy + `(line) WHERE r.grp = ? AND r.topic = ? AND r.slot = ? AND r.wake_at > ? ORDER BY r.wake_at, r.seq LIMIT ?`
	sqlByKey  = rowsBy + `(by_key) WHERE r.grp = ? AND r.topic = ? AND r.rec_key = ? AND r.slot = ? AND r.seq > ? ORDER BY r.seq LIMIT ?`
	sqlTimer  = rowsBy + `(timers) WHERE r.timer = ? AND r.timer_at <= ? ORDER BY r.timer_at, r.seq LIMIT ?`

	// sqlEndedExpired finds ended leases of expired rows. Ended leases are few: they are reaped.
	sqlEndedExpired = rowsBy + `(timers) WHERE r.timer = 1 AND r.timer_at <= ? AND r.expires_at > 0 AND r.expires_at <= ?
ORDER BY r.expires_at, r.seq LIMIT ?`
	sqlByStep   = rowsBy + `(steps) WHERE r.step = ? ORDER BY r.seq LIMIT ?`
	sqlByWaiter = rowsBy + `(waiters) WHERE r.waits_for = ? AND r.stage IN (2, 3) AND r.wake_at > ? ORDER BY r.seq LIMIT ?`

	// sqlByOpen takes rows of any line in a slot.
	sqlByOpen = `SELECT ` + rowColumns + ` FROM (SELECT DISTINCT a.grp, a.topic FROM {p:records} AS a FORCE INDEX (line)) AS l
STRAIGHT_JOIN {p:records} AS r FORCE INDEX (line) ON r.grp = l.grp AND r.topic = l.topic AND r.slot = ? LIMIT ?`
)

// selects returns the selects of a search, each of which reads an index in its order.
func (t *tx) selects(s driver.Search) (list []fragment) {
	d, now := t.d, t.state.Now
	slots := func(slots ...int) {
		for _, slot := range slots {
			list = append(list, d.part(sqlBySlot, s.Group, s.Name(), slot, s.Limit))
		}
	}
	coming := func() {
		for _, slot := range []driver.Stage{driver.Waiting, driver.Delayed, driver.Leased} {
			list = append(list, d.part(sqlComing, s.Group, s.Name(), slot, now, s.Limit))
		}
	}
	from := s.From
	if from == 0 {
		from = math.MinInt64
	}
	switch s.By {
	case driver.ByStage:
		slots(slotsOf(s.Stage)...)
	case driver.ByPlace:
		slots(int(driver.Ready), int(driver.Held), slotPaused)
	case driver.ByKeyed:
		slots(int(driver.Held))
	case driver.ByPaused:
		slots(slotPaused)
	case driver.ByComing:
		coming()
	case driver.ByDue:
		slots(int(driver.Ready))
		coming()
	case driver.ByLater:
		list = []fragment{d.part(sqlLater, s.Group, s.Name(), s.Stage, now, s.Limit)}
	case driver.ByEnded:
		list = []fragment{d.part(sqlTimer, timerLease, now, s.Limit)}
	case driver.ByExpiry:
		list = []fragment{d.part(sqlTimer, timerExpiry, now, s.Limit), d.part(sqlEndedExpired, now, now, s.Limit)}
	case driver.ByKey:
		for _, slot := range []int{int(driver.Ready), int(driver.Held), slotPaused, int(driver.Waiting), int(driver.Delayed)} {
			list = append(list, d.part(sqlByKey, s.Group, s.Name(), s.Key, slot, from, s.Limit))
		}
	case driver.ByParked:
		list = []fragment{d.part(sqlByKey, s.Group, s.Name(), s.Key, slotParked, from, s.Limit)}
	case driver.ByDone:
		list = []fragment{d.part(sqlTimer, timerProcessed, s.Until, s.Limit)}
	case driver.ByUnrouted:
		s.Group = ""
		slots(int(driver.Ready), int(driver.Delayed))
	case driver.ByStep:
		list = []fragment{d.part(sqlByStep, idOf(s.Step), s.Limit)}
	case driver.ByWaiter:
		list = []fragment{d.part(sqlByWaiter, idOf(s.Join), now, s.Limit)}
	case driver.ByOpen:
		for _, slot := range openSlots {
			list = append(list, d.part(sqlByOpen, slot, s.Limit))
		}
	}
	return list
}

// openSlots are those of rows in work.
var openSlots = []int{int(driver.Ready), int(driver.Held), slotPaused, int(driver.Waiting), int(driver.Delayed), int(driver.Leased)}

// slotsOf are the slots of a stage.
func slotsOf(stage driver.Stage) []int {
	switch stage {
	case driver.Held:
		return []int{int(driver.Held), slotPaused}
	case driver.Dead:
		return []int{int(driver.Dead), slotParked}
	default:
		return []int{int(stage)}
	}
}

// Rows runs the searches.
func (t *tx) Rows(ctx context.Context, searches ...driver.Search) (all []driver.Row, _ error) {
	for _, s := range searches {
		if s.By == driver.ByUnrouted && !t.state.Unrouted {
			continue
		}
		selects := t.selects(s)
		var found []driver.Row
		var err error
		if s.Free && t.locks {
			found, err = t.lockRows(ctx, selects)
		} else {
			found, err = list(ctx, t, sqlkit.ReadRow, `?`, unionOf(selects))
		}
		if err != nil {
			return nil, err
		}
		s.By.Sort(found)
		if !s.By.ForEach() {
			found = found[:min(len(found), s.Limit)]
		}
		all = append(all, found...)
	}
	return all, nil
}

// lockRows runs selects, and locks what they find, without what others have locked. No part of a UNION locks rows.
func (t *tx) lockRows(ctx context.Context, selects []fragment) (found []driver.Row, _ error) {
	for _, s := range selects {
		rows, err := list(ctx, t, sqlkit.ReadRow, `? FOR UPDATE SKIP LOCKED`, s)
		if err != nil {
			return nil, err
		}
		found = append(found, rows...)
	}
	return found, nil
}

// unionOf is one statement of selects that are sorted and limited by themselves.
func unionOf(selects []fragment) fragment {
	if len(selects) == 1 {
		return selects[0]
	}
	apart := make([]fragment, len(selects))
	for i, s := range selects {
		apart[i] = "(" + s + ")"
	}
	return union(apart)
}

// sqlCount counts what the search of a number finds: the rows, those that are later, and the first time.
const sqlCount = `SELECT ? AS nth, COUNT(*), COALESCE(SUM(f.next_at > ? AND f.stage <> 4), 0),
	COALESCE(MIN(CASE WHEN f.expires_at > 0 AND f.expires_at <= ? THEN NULL WHEN f.stage = 4 THEN f.wake_at ELSE f.next_at END), 0)
FROM (SELECT * FROM (?) AS a ORDER BY a.seq LIMIT ?) AS f`

// countColumns are those that a count reads. The server writes what it counts into a temporary table, which with all columns is on disk.
const countColumns = `r.seq, r.stage, r.wake_at, r.next_at, r.expires_at`

// countsAtOnce is how many searches one statement counts.
const countsAtOnce = 64

// Count counts what searches of lines find.
func (t *tx) Count(ctx context.Context, searches ...driver.Search) ([]driver.Counted, error) {
	all := make([]driver.Counted, len(searches))
	for first := 0; first < len(searches); first += countsAtOnce {
		var counts []fragment
		for i, s := range searches[first:min(first+countsAtOnce, len(searches))] {
			selects := t.selects(s)
			limit := s.Limit
			if s.By.ForEach() {
				limit *= len(selects)
			}
			found := fragment(strings.ReplaceAll(string(unionOf(selects)), rowColumns, countColumns))
			counts = append(counts, t.d.part(sqlCount, first+i, t.state.Now, t.state.Now, found, limit))
		}
		err := t.each(ctx, func(scan scan) error {
			nth, c := 0, driver.Counted{}
			err := scan(&nth, &c.N, &c.Later, (*int64)(&c.Oldest))
			all[nth] = c
			return err
		}, `?`, unionOf(counts))
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}
