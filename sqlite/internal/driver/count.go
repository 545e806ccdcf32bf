package driver

import (
	"context"
	"fmt"

	"github.com/outmill/outmill/engine/driver"
)

// The statements of Count return N, Later, Oldest and Ended. Of rows in the order of their Seqs the first ones are
// looked at.
const (
	counted = `SELECT count(*), coalesce(sum(next_at > ?3), 0), coalesce(min(iif(` + notExpired + `, next_at, NULL)), 0), 0
FROM (SELECT next_at, expires_at FROM {p:records} `

	sqlCountReady = counted + `INDEXED BY {p:line} WHERE grp = ?1 AND topic = ?2 AND stage = 0 ORDER BY seq LIMIT ?4)`
	sqlCountHeld  = counted + `INDEXED BY {p:held} WHERE grp = ?1 AND topic = ?2 AND stage = 1 ORDER BY seq LIMIT ?4)`
	sqlCountDone  = counted + `INDEXED BY {p:settled} WHERE grp = ?1 AND topic = ?2 AND stage = 5 AND stage > 4 ORDER BY seq LIMIT ?4)`
	sqlCountDead  = counted + `INDEXED BY {p:settled} WHERE grp = ?1 AND topic = ?2 AND stage = 6 AND stage > 4 ORDER BY seq LIMIT ?4)`
	sqlCountPark  = counted + `INDEXED BY {p:parked} WHERE grp = ?1 AND topic = ?2 AND key = ?6 AND parked > 0 AND seq > ?5
	ORDER BY seq LIMIT ?4)`
)

// sqlCountWait counts waiting and delayed rows from both ends, because Later has a limit of its own.
const sqlCountWait = `SELECT count(*), min(?4, coalesce(sum(next_at > ?3 AND wake_at <= ?3), 0) + (
	SELECT count(*) FROM (SELECT 1 FROM {p:records} INDEXED BY {p:later}
		WHERE grp = ?1 AND topic = ?2 AND stage = ?5 AND wake_at <> 0 AND wake_at > ?3 ORDER BY wake_at LIMIT ?4))),
	coalesce(min(iif(` + notExpired + `, next_at, NULL)), 0), 0
FROM (SELECT next_at, expires_at, wake_at FROM {p:records} INDEXED BY {p:later}
	WHERE grp = ?1 AND topic = ?2 AND stage = ?5 AND wake_at <> 0 ORDER BY wake_at LIMIT ?4)`

// sqlCountLeased counts the leases that have not ended and those that have.
const sqlCountLeased = `SELECT (SELECT count(*) FROM (SELECT 1 FROM {p:records} INDEXED BY {p:later}
	WHERE grp = ?1 AND topic = ?2 AND stage = 4 AND wake_at <> 0 AND wake_at > ?3 ORDER BY wake_at LIMIT ?4)), 0,
	coalesce(min(iif(` + notExpired + `, wake_at, NULL)), 0), count(*)
FROM (SELECT wake_at, expires_at FROM {p:records} INDEXED BY {p:later}
	WHERE grp = ?1 AND topic = ?2 AND stage = 4 AND wake_at <> 0 AND wake_at <= ?3 ORDER BY wake_at LIMIT ?4)`

// Count counts rows in stages, and parked rows of keys.
func (t *tx) Count(ctx context.Context, searches ...driver.Search) ([]driver.Counted, error) {
	all := make([]driver.Counted, len(searches))
	for i, s := range searches {
		text, last := countOf(s)
		if text == "" {
			return nil, fmt.Errorf("nothing counts search %d: this is a fault of package engine", s.By)
		}
		found, err := list(ctx, t, func(v *values, c *driver.Counted) {
			c.N, c.Later, c.Oldest, c.Ended = int(v.number(0)), int(v.number(1)), driver.Time(v.number(2)), int(v.number(3))
		}, text, s.Group, s.Name(), int64(t.state.Now), s.Limit, last, s.Key)
		if err != nil {
			return nil, err
		}
		all[i] = found[0]
	}
	return all, nil
}

// countOf returns the statement, and its fifth argument.
func countOf(s driver.Search) (text string, last int64) {
	switch s.By {
	case driver.ByParked:
		return sqlCountPark, fromOf(s)
	case driver.ByStage:
		return counts[s.Stage], int64(s.Stage)
	default:
		return "", 0
	}
}

var counts = [driver.Dead + 1]string{
	driver.Ready: sqlCountReady, driver.Held: sqlCountHeld, driver.Waiting: sqlCountWait, driver.Delayed: sqlCountWait,
	driver.Leased: sqlCountLeased, driver.Processed: sqlCountDone, driver.Dead: sqlCountDead,
}
