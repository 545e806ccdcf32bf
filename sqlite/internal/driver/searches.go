package driver

import (
	"context"
	"math"

	"github.com/outmill/outmill/engine/driver"
)

// Each search reads one index in its order, and names it, so that SQLite scans no table, with or without ANALYZE.
// ?1 is the group, ?2 the topic, ?3 now, ?4 the limit, ?5 Search.From or Search.Until, ?6 the key, the step or the join.
const (
	sqlByLine = `SELECT ` + rowColumns + ` FROM {p:records} AS r INDEXED BY {p:line}
WHERE grp = ?1 AND topic = ?2 AND stage = 0 AND seq > ?5 ORDER BY seq LIMIT ?4`
	sqlByHeld = `SELECT ` + rowColumns + ` FROM {p:records} AS r INDEXED BY {p:held}
WHERE grp = ?1 AND topic = ?2 AND stage = 1 AND seq > ?5 ORDER BY seq LIMIT ?4`
	sqlByWaiting = `SELECT ` + rowColumns + ` FROM {p:records} AS r INDEXED BY {p:later}
WHERE grp = ?1 AND topic = ?2 AND stage = 2 AND wake_at <> 0 AND wake_at <= ?3 ORDER BY wake_at, seq LIMIT ?4`
	sqlByDelayed = `SELECT ` + rowColumns + ` FROM {p:records} AS r INDEXED BY {p:later}
WHERE grp = ?1 AND topic = ?2 AND stage = 3 AND wake_at <> 0 AND wake_at <= ?3 ORDER BY wake_at, seq LIMIT ?4`
	sqlByLease = `SELECT ` + rowColumns + ` FROM {p:records} AS r INDEXED BY {p:later}
WHERE grp = ?1 AND topic = ?2 AND stage = 4 AND wake_at <> 0 AND wake_at <= ?3 ORDER BY wake_at, seq LIMIT ?4`
	sqlByEnded = `SELECT ` + rowColumns + ` FROM {p:records} AS r INDEXED BY {p:leases}
WHERE stage = 4 AND wake_at <= ?3 ORDER BY wake_at, seq LIMIT ?4`
	sqlByExpiry = `SELECT ` + rowColumns + ` FROM {p:records} AS r INDEXED BY {p:expiring}
WHERE expires_at <> 0 AND expires_at <= ?3 AND stage < 5 AND (stage <> 4 OR wake_at <= ?3) ORDER BY expires_at, seq LIMIT ?4`
	sqlByKey = `SELECT ` + rowColumns + ` FROM {p:records} AS r INDEXED BY {p:by_key}
WHERE grp = ?1 AND topic = ?2 AND key = ?6 AND key <> '' AND seq > ?5 AND stage < 4 ORDER BY seq LIMIT ?4`
	sqlByParked = `SELECT ` + rowColumns + ` FROM {p:records} AS r INDEXED BY {p:parked}
WHERE grp = ?1 AND topic = ?2 AND key = ?6 AND parked > 0 AND seq > ?5 ORDER BY seq LIMIT ?4`
	sqlByDone = `SELECT ` + rowColumns + ` FROM {p:records} AS r INDEXED BY {p:processed}
WHERE stage = 5 AND processed_at <= ?5 ORDER BY processed_at, seq LIMIT ?4`
	sqlByUnrouted = `SELECT ` + rowColumns + ` FROM {p:records} AS r INDEXED BY {p:unrouted}
WHERE grp = '' AND stage IN (0, 3) AND topic = ?2 ORDER BY seq LIMIT ?4`
	sqlByStep = `SELECT ` + rowColumns + ` FROM {p:records} AS r INDEXED BY {p:step}
WHERE step = ?6 ORDER BY seq LIMIT ?4`
	sqlByWaiter = `SELECT ` + rowColumns + ` FROM {p:records} AS r INDEXED BY {p:waits_for}
WHERE waits_for = ?6 AND stage IN (2, 3) AND wake_at > ?3 ORDER BY seq LIMIT ?4`
)

// The searches of the stages that the searches above do not read whole.
const (
	sqlWaiting = `SELECT ` + rowColumns + ` FROM {p:records} AS r INDEXED BY {p:later}
WHERE grp = ?1 AND topic = ?2 AND stage = 2 AND wake_at <> 0 ORDER BY wake_at, seq LIMIT ?4`
	sqlDelayed = `SELECT ` + rowColumns + ` FROM {p:records} AS r INDEXED BY {p:later}
WHERE grp = ?1 AND topic = ?2 AND stage = 3 AND wake_at <> 0 ORDER BY wake_at, seq LIMIT ?4`
	sqlLeased = `SELECT ` + rowColumns + ` FROM {p:records} AS r INDEXED BY {p:later}
WHERE grp = ?1 AND topic = ?2 AND stage = 4 AND wake_at <> 0 ORDER BY wake_at, seq LIMIT ?4`
	sqlProcessed = `SELECT ` + rowColumns + ` FROM {p:records} AS r INDEXED BY {p:settled}
WHERE grp = ?1 AND topic = ?2 AND stage = 5 AND stage > 4 ORDER BY seq LIMIT ?4`
	sqlDead = `SELECT ` + rowColumns + ` FROM {p:records} AS r INDEXED BY {p:settled}
WHERE grp = ?1 AND topic = ?2 AND stage = 6 AND stage > 4 ORDER BY seq LIMIT ?4`
)

// Several searches in one statement: those of a claim without an order, and the first ones of a claim with one.
const (
	sqlComing = `SELECT * FROM (` + sqlByWaiting + `)
UNION ALL SELECT * FROM (` + sqlByDelayed + `)
UNION ALL SELECT * FROM (` + sqlByLease + `)`
	sqlFree   = `SELECT * FROM (` + sqlByLine + `) UNION ALL ` + sqlComing
	sqlInLine = `SELECT * FROM (` + sqlByLine + `)
UNION ALL SELECT * FROM (` + sqlByHeld + `)`
)

// sqlByOpen takes the first entries of each index that has rows in work.
const sqlByOpen = `SELECT * FROM (SELECT ` + rowColumns + ` FROM {p:records} AS r INDEXED BY {p:line} WHERE stage = 0 LIMIT ?4)
UNION ALL SELECT * FROM (SELECT ` + rowColumns + ` FROM {p:records} AS r INDEXED BY {p:held} WHERE stage = 1 LIMIT ?4)
UNION ALL SELECT * FROM (SELECT ` + rowColumns + ` FROM {p:records} AS r INDEXED BY {p:later} WHERE wake_at <> 0 LIMIT ?4) LIMIT ?4`

// searches are the statements of all searches but ByStage.
var searches = map[driver.Index]string{
	driver.ByLine: sqlByLine, driver.ByHeld: sqlByHeld, driver.ByWaiting: sqlByWaiting, driver.ByDelayed: sqlByDelayed,
	driver.ByLease: sqlByLease, driver.ByEnded: sqlByEnded, driver.ByExpiry: sqlByExpiry, driver.ByKey: sqlByKey,
	driver.ByParked: sqlByParked, driver.ByDone: sqlByDone, driver.ByUnrouted: sqlByUnrouted, driver.ByStep: sqlByStep,
	driver.ByWaiter: sqlByWaiter, driver.ByOpen: sqlByOpen,
}

// stages are the statements of ByStage.
var stages = [driver.Dead + 1]string{
	driver.Ready: sqlByLine, driver.Held: sqlByHeld, driver.Waiting: sqlWaiting, driver.Delayed: sqlDelayed, driver.Leased: sqlLeased,
	driver.Processed: sqlProcessed, driver.Dead: sqlDead,
}

// together are the lists of searches that have a statement of their own.
var together = []struct {
	by   []driver.Index
	text string
}{
	{[]driver.Index{driver.ByLine, driver.ByWaiting, driver.ByDelayed, driver.ByLease}, sqlFree},
	{[]driver.Index{driver.ByWaiting, driver.ByDelayed, driver.ByLease}, sqlComing},
	{[]driver.Index{driver.ByLine, driver.ByHeld}, sqlInLine},
}

// Rows runs the searches.
func (t *tx) Rows(ctx context.Context, searches ...driver.Search) (all []driver.Row, _ error) {
	for len(searches) > 0 {
		text, n := textOf(searches)
		found, err := t.search(ctx, text, searches[0])
		if err != nil {
			return nil, err
		}
		if all == nil {
			all = found
		} else {
			all = append(all, found...)
		}
		searches = searches[n:]
	}
	return all, nil
}

// textOf returns the statement of the first of the searches, and how many of them it is for.
func textOf(list []driver.Search) (text string, n int) {
	for _, many := range together {
		if isTogether(list, many.by) {
			return many.text, len(many.by)
		}
	}
	if list[0].By == driver.ByStage {
		return stages[list[0].Stage], 1
	}
	return searches[list[0].By], 1
}

// isTogether reports whether the searches begin with these, and have the same arguments.
func isTogether(searches []driver.Search, by []driver.Index) bool {
	if len(searches) < len(by) {
		return false
	}
	for i, index := range by {
		s := searches[i]
		if s.By != index || s.Line != searches[0].Line || s.Limit != searches[0].Limit || s.From != 0 {
			return false
		}
	}
	return true
}

// fromOf is Search.From: some Seqs are below 0.
func fromOf(s driver.Search) int64 {
	if s.From == 0 {
		return math.MinInt64
	}
	return s.From
}

func (t *tx) search(ctx context.Context, text string, s driver.Search) ([]driver.Row, error) {
	from, key := fromOf(s), s.Key
	switch s.By {
	case driver.ByUnrouted:
		if !t.state.Unrouted {
			return nil, nil
		}
	case driver.ByStep:
		key = s.Step.String()
	case driver.ByWaiter:
		key = s.Join.String()
	case driver.ByDone:
		from = int64(s.Until)
	case driver.ByStage:
		from = math.MinInt64
	default:
	}
	return list(ctx, t, readRow, text, s.Group, s.Name(), int64(t.state.Now), s.Limit, from, key)
}
