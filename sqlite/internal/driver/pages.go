package driver

import (
	"context"
	"slices"
	"strconv"

	"github.com/outmill/outmill/engine/driver"
)

// Pages of several lines are read by three statements. ?2 has the names of the lines.
const (
	// sqlAlone finds the lines of which a claim must look at more than the ready rows.
	sqlAlone = `SELECT value FROM json_each(?2) AS j WHERE
	EXISTS (SELECT 1 FROM {p:records} INDEXED BY {p:later}
		WHERE grp = ?1 AND topic = j.value AND stage IN (2, 3, 4) AND wake_at <> 0 AND wake_at <= ?3)
	OR ?4 AND (EXISTS (SELECT 1 FROM json_each(?5) AS b CROSS JOIN {p:notes} AS n INDEXED BY {p:notes_by}
		ON n.grp = ?1 AND n.blocker = b.value AND n.topic = j.value)
		OR EXISTS (SELECT 1 FROM {p:notes} INDEXED BY {p:notes_look} WHERE grp = ?1 AND topic = j.value AND look_at <> 0 AND look_at <= ?3)
		OR NOT ?7 AND EXISTS (SELECT 1 FROM {p:notes} WHERE grp = ?1 AND topic = j.value AND name >= 'q' AND name < 'r'))
	OR ?6 AND EXISTS (SELECT 1 FROM {p:records} INDEXED BY {p:unrouted} WHERE grp = '' AND stage IN (0, 3) AND topic = j.value)
	OR ?7 AND EXISTS (SELECT 1 FROM {p:records} INDEXED BY {p:held_under}
		WHERE grp = ?1 AND topic = j.value AND stage = 1 AND under >= 'k' AND under < 'l')`

	sqlFirst = `SELECT ` + rowColumns + `, j.key FROM json_each(?2) AS j CROSS JOIN {p:records} AS r ON r.seq IN (
	SELECT seq FROM {p:records} INDEXED BY {p:line} WHERE grp = ?1 AND topic = j.value AND stage = 0 ORDER BY seq LIMIT ?3)`

	// sqlKeysOf is sqlKeys for pairs of a line and a key. ?2 is not used.
	sqlKeysOf = `WITH k AS MATERIALIZED (SELECT CAST(key AS TEXT) AS name, value ->> 0 AS topic, value ->> 1 AS key FROM json_each(?5))
` + keyStates + `k`
)

// Pages reads the first ready rows of several lines, and the states of their keys.
func (t *tx) Pages(ctx context.Context, ask driver.Ask, lines []driver.Line) ([]driver.Page, error) {
	group, names, pages := lines[0].Group, namesOf(lines), make([]driver.Page, len(lines))
	alone, err := t.texts(ctx, sqlAlone, group, jsonOf(names), int64(t.state.Now), t.state.Notes, jsonOf(ask.Free),
		t.state.Unrouted, !ask.Keys)
	if err != nil {
		return nil, err
	}
	for _, name := range alone {
		pages[slices.Index(names, name)].Busy = true
	}
	// Pairs of a line and a key, each once, and of which page they are.
	var pairs [][2]string
	var of []int
	if _, err = list(ctx, t, func(v *values, r *driver.Row) {
		i := int(v.number(rowWidth))
		page := &pages[i]
		if readRow(v, r); page.Busy {
			return
		}
		page.Ready = append(page.Ready, *r)
		if !ask.Keys || r.Key == "" {
			return
		}
		if page.Keys == nil {
			page.Keys = map[string]driver.KeyState{}
		}
		if _, known := page.Keys[r.Key]; !known {
			page.Keys[r.Key] = driver.KeyState{}
			pairs, of = append(pairs, [2]string{names[i], r.Key}), append(of, i)
		}
	}, sqlFirst, group, jsonOf(names), ask.Limit); err != nil || len(pairs) == 0 {
		return pages, err
	}
	found, err := list(ctx, t, readState, sqlKeysOf, group, "", int64(t.state.Now), ask.Owner, jsonOf(pairs))
	for _, s := range found {
		i, _ := strconv.Atoi(s.key)
		pages[of[i]].Keys[pairs[i][1]] = s.KeyState
	}
	return pages, err
}
