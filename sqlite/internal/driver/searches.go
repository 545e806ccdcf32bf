package driver

import (
	"context"
	"math"
	"strings"

	"github.com/outmill/outmill/engine/driver"
)

// Each search reads one index in its order, and names it, so that SQLite scans no table, with or without ANALYZE. ?1 is the group,
// ?2 the topic, ?3 now, ?4 the limit, ?5 where the search begins (see startOf), ?6 the key, the step or the join, ?7 the stage.
const (
	rowsBy = `SELECT ` + rowColumns + ` FROM {p:records} AS r INDEXED BY `

	sqlReady    = rowsBy + `{p:line} WHERE grp = ?1 AND topic = ?2 AND stage = 0 ORDER BY seq LIMIT ?4`
	keyed       = rowsBy + `{p:held} WHERE grp = ?1 AND topic = ?2 AND stage = 1 AND (under < 'l') = 1`
	paused      = rowsBy + `{p:held} WHERE grp = ?1 AND topic = ?2 AND stage = 1 AND (under < 'l') = 0`
	sqlByKeyed  = keyed + ` ORDER BY seq LIMIT ?4`
	sqlByPaused = paused + ` ORDER BY seq LIMIT ?4`
	sqlHeld     = keyed + ` UNION ALL ` + paused + ` ORDER BY 1 LIMIT ?4`
	sqlTimed    = rowsBy + `{p:later}
WHERE grp = ?1 AND topic = ?2 AND stage = ?7 AND wake_at <> 0 AND wake_at > ?5 ORDER BY wake_at, seq LIMIT ?4`
	sqlSettled = rowsBy + `{p:settled} WHERE grp = ?1 AND topic = ?2 AND stage = ?7 AND stage > 4 ORDER BY seq LIMIT ?4`
	sqlByPlace = rowsBy + `{p:line} WHERE grp = ?1 AND topic = ?2 AND stage = 0
UNION ALL ` + sqlHeld
	sqlByComing = `SELECT * FROM (` + rowsBy + `{p:later}
WHERE grp = ?1 AND topic = ?2 AND stage = 2 AND wake_at <> 0 AND wake_at <= ?3 ORDER BY wake_at, seq LIMIT ?4)
UNION ALL SELECT * FROM (` + rowsBy + `{p:later}
WHERE grp = ?1 AND topic = ?2 AND stage = 3 AND wake_at <> 0 AND wake_at <= ?3 ORDER BY wake_at, seq LIMIT ?4)
UNION ALL SELECT * FROM (` + rowsBy + `{p:later}
WHERE grp = ?1 AND topic = ?2 AND stage = 4 AND wake_at <> 0 AND wake_at <= ?3 ORDER BY wake_at, seq LIMIT ?4)`
	sqlByDue    = `SELECT * FROM (` + sqlReady + `) UNION ALL ` + sqlByComing
	sqlByEnded  = rowsBy + `{p:leases} WHERE stage = 4 AND wake_at <= ?3 ORDER BY wake_at, seq LIMIT ?4`
	sqlByExpiry = rowsBy + `{p:expiring}
WHERE expires_at <> 0 AND expires_at <= ?3 AND stage < 5 AND (stage <> 4 OR wake_at <= ?3) ORDER BY expires_at, seq LIMIT ?4`
	sqlByKey = rowsBy + `{p:by_key}
WHERE grp = ?1 AND topic = ?2 AND key = ?6 AND key <> '' AND seq > ?5 AND stage < 4 ORDER BY seq LIMIT ?4`
	sqlByParked   = rowsBy + `{p:parked} WHERE grp = ?1 AND topic = ?2 AND key = ?6 AND parked > 0 AND seq > ?5 ORDER BY seq LIMIT ?4`
	sqlByDone     = rowsBy + `{p:processed} WHERE stage = 5 AND processed_at <= ?5 ORDER BY processed_at, seq LIMIT ?4`
	sqlByUnrouted = rowsBy + `{p:unrouted} WHERE grp = '' AND stage IN (0, 3) AND topic = ?2 ORDER BY seq LIMIT ?4`
	sqlByStep     = rowsBy + `{p:step} WHERE step = ?6 ORDER BY seq LIMIT ?4`
	sqlByWaiter   = rowsBy + `{p:waits_for} WHERE waits_for = ?6 AND stage IN (2, 3) AND wake_at > ?3 ORDER BY seq LIMIT ?4`

	// sqlByOpen takes the first entries of each index that has rows in work.
	sqlByOpen = `SELECT * FROM (` + rowsBy + `{p:line} WHERE stage = 0 LIMIT ?4)
UNION ALL SELECT * FROM (` + rowsBy + `{p:held} WHERE stage = 1 LIMIT ?4)
UNION ALL SELECT * FROM (` + rowsBy + `{p:later} WHERE wake_at <> 0 LIMIT ?4) LIMIT ?4`
)

// searches are the statements of all searches but ByStage.
var searches = map[driver.Index]string{
	driver.ByPlace: sqlByPlace, driver.ByKeyed: sqlByKeyed, driver.ByPaused: sqlByPaused,
	driver.ByComing: sqlByComing, driver.ByDue: sqlByDue, driver.ByLater: sqlTimed,
	driver.ByEnded: sqlByEnded, driver.ByExpiry: sqlByExpiry, driver.ByKey: sqlByKey, driver.ByParked: sqlByParked,
	driver.ByDone: sqlByDone, driver.ByUnrouted: sqlByUnrouted, driver.ByStep: sqlByStep, driver.ByWaiter: sqlByWaiter,
	driver.ByOpen: sqlByOpen,
}

// stages are the statements of ByStage.
var stages = [driver.Dead + 1]string{
	driver.Ready: sqlReady, driver.Held: sqlHeld, driver.Waiting: sqlTimed, driver.Delayed: sqlTimed, driver.Leased: sqlTimed,
	driver.Processed: sqlSettled, driver.Dead: sqlSettled,
}

func (t *tx) Rows(ctx context.Context, searches ...driver.Search) (all []driver.Row, _ error) {
	for _, s := range searches {
		if s.By == driver.ByUnrouted && !t.state.Unrouted {
			continue
		}
		text, args := t.search(s)
		found, err := list(ctx, t, readRow, text, args...)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// counted counts what a search finds. It reads the columns that it needs alone: to bring all of them takes twice as long.
func counted(search string) string {
	return countOf + strings.ReplaceAll(search, rowColumns, `r.seq, r.stage, r.wake_at, r.next_at, r.expires_at`) + ")"
}

const countOf = `SELECT count(*), coalesce(sum(next_at > ?3 AND stage <> 4), 0),
	coalesce(min(iif(` + notExpired + `, iif(stage = 4, wake_at, next_at), NULL)), 0) FROM (`

func (t *tx) Count(ctx context.Context, searches ...driver.Search) (all []driver.Counted, _ error) {
	for _, s := range searches {
		text, args := t.search(s)
		found, err := list(ctx, t, func(v *values, c *driver.Counted) {
			c.N, c.Later, c.Oldest = v.count(0), v.count(1), driver.Time(v.number(2))
		}, counted(text), args...)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// search returns the statement of a search, and its arguments.
func (t *tx) search(s driver.Search) (text string, args []any) {
	key := s.Key
	switch s.By {
	case driver.ByStep:
		key = s.Step.String()
	case driver.ByWaiter:
		key = s.Join.String()
	default:
	}
	if text = searches[s.By]; s.By == driver.ByStage {
		text = stages[s.Stage]
	}
	return text, []any{s.Group, s.Name(), int64(t.state.Now), s.Limit, t.startOf(s), key, int64(s.Stage)}
}

// startOf is what a search begins behind, or ends at. Some Seqs and times are below 0.
func (t *tx) startOf(s driver.Search) int64 {
	switch {
	case s.By == driver.ByDone:
		return int64(s.Until)
	case s.By == driver.ByLater:
		return int64(t.state.Now)
	case s.From != 0:
		return s.From
	}
	return math.MinInt64
}
