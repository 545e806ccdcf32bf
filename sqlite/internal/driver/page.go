package driver

import (
	"context"

	"github.com/outmill/outmill/engine/driver"
)

// notExpired excludes rows that have expired at ?3.
const notExpired = `(expires_at = 0 OR expires_at > ?3)`

const (
	sqlUnder = `SELECT ` + rowColumns + ` FROM json_each(?5) AS j CROSS JOIN {p:records} AS r ON r.seq IN (
	SELECT seq FROM {p:records} INDEXED BY {p:held_under} WHERE grp = ?1 AND topic = ?2 AND stage = 1 AND under = j.value
	ORDER BY seq LIMIT ?4)`

	// sqlNotes reads the first notes of each blocker in ?5, those whose time has come, and with ?6 those of Ask.Keys.
	sqlNotes = `SELECT name, blocker, head, look_at, looks FROM (
	SELECT n.name, n.blocker, n.head, n.look_at, n.looks FROM json_each(?5) AS j CROSS JOIN {p:notes} AS n
	ON n.grp = ?1 AND n.topic = ?2 AND n.name IN (
		SELECT name FROM {p:notes} INDEXED BY {p:notes_by} WHERE grp = ?1 AND blocker = j.value AND topic = ?2 ORDER BY head LIMIT ?4)
	UNION
	SELECT name, blocker, head, look_at, looks FROM {p:notes} INDEXED BY {p:notes_look}
	WHERE grp = ?1 AND topic = ?2 AND look_at <> 0 AND look_at <= ?3
	UNION SELECT name, blocker, head, look_at, looks FROM {p:notes} WHERE ?6 AND grp = ?1 AND topic = ?2 AND name >= 'q' AND name < 'r')
ORDER BY head, name LIMIT ?4`

	// sqlKeys finds, for each key of ?5, another owner than ?4 with a lease, and the first rows that wait, that are held
	// and that are parked. The owners before and behind ?4 are two searches of one entry each.
	sqlKeys = `SELECT k.value, coalesce(
	(SELECT owner FROM {p:records} INDEXED BY {p:leased_key} WHERE grp = ?1 AND topic = ?2 AND key = k.value AND stage = 4 AND key <> ''
		AND owner < ?4 AND (wake_at > ?3 OR ` + notExpired + `) LIMIT 1),
	(SELECT owner FROM {p:records} INDEXED BY {p:leased_key} WHERE grp = ?1 AND topic = ?2 AND key = k.value AND stage = 4 AND key <> ''
		AND owner > ?4 AND (wake_at > ?3 OR ` + notExpired + `) LIMIT 1), ''),
	(SELECT seq FROM {p:records} INDEXED BY {p:waiting_key} WHERE grp = ?1 AND topic = ?2 AND key = k.value AND stage = 2 AND key <> ''
		AND ` + notExpired + ` ORDER BY seq LIMIT 1),
	(SELECT seq FROM {p:records} INDEXED BY {p:held_under} WHERE grp = ?1 AND topic = ?2 AND stage = 1 AND under = 'k' || k.value
		ORDER BY seq LIMIT 1),
	(SELECT seq FROM {p:records} INDEXED BY {p:parked} WHERE grp = ?1 AND topic = ?2 AND key = k.value AND parked > 0 ORDER BY seq LIMIT 1)
FROM json_each(?5) AS k`

	sqlWhole = `SELECT '', coalesce((SELECT owner FROM {p:records} INDEXED BY {p:later}
		WHERE grp = ?1 AND topic = ?2 AND stage = 4 AND wake_at <> 0 AND owner <> ?4 AND (wake_at > ?3 OR ` + notExpired + `) LIMIT 1), ''),
	(SELECT seq FROM {p:records} INDEXED BY {p:waiting} WHERE grp = ?1 AND topic = ?2 AND stage = 2 AND ` + notExpired + `
		ORDER BY seq LIMIT 1), NULL, NULL`
)

// Page reads a page part by part: a transaction sees one moment.
func (t *tx) Page(ctx context.Context, ask driver.Ask) (driver.Page, error) {
	return driver.ReadPage(ctx, t, ask)
}

func (t *tx) Pages(ctx context.Context, ask driver.Ask, lines []driver.Line) ([]driver.Page, error) {
	return driver.ReadPages(ctx, t, ask, lines)
}

func (t *tx) Notes(ctx context.Context, ask driver.Ask) ([]driver.Note, error) {
	return list(ctx, t, func(v *values, n *driver.Note) {
		n.Line = ask.Line
		n.Name, n.Blocker = v.text(0), v.text(1)
		n.Head, n.LookAt, n.Looks = v.number(2), driver.Time(v.number(3)), int(v.number(4))
	}, sqlNotes, ask.Group, ask.Name(), int64(t.state.Now), ask.Limit, jsonOf(ask.Free), ask.Keys)
}

func (t *tx) Under(ctx context.Context, line driver.Line, names []string, limit int) ([]driver.Row, error) {
	return list(ctx, t, readRow, sqlUnder, line.Group, line.Name(), 0, limit, jsonOf(names))
}

// readState leaves Due out: see driver.KeyState.
func readState(v *values, s *driver.KeyState) {
	*s = driver.KeyState{Other: v.text(1), Due: driver.None, Waiting: v.seq(2), Held: v.seq(3), Parked: v.seq(4)}
}

func (t *tx) Keys(ctx context.Context, line driver.Line, owner string, keys []string) (map[string]driver.KeyState, error) {
	states := make(map[string]driver.KeyState, len(keys))
	_, err := list(ctx, t, func(v *values, s *driver.KeyState) {
		readState(v, s)
		states[v.text(0)] = *s
	}, sqlKeys, line.Group, line.Name(), int64(t.state.Now), owner, jsonOf(keys))
	return states, err
}

func (t *tx) Whole(ctx context.Context, line driver.Line, owner string) (s driver.KeyState, err error) {
	_, err = list(ctx, t, func(v *values, _ *struct{}) { readState(v, &s) }, sqlWhole, line.Group, line.Name(), int64(t.state.Now), owner)
	return s, err
}
