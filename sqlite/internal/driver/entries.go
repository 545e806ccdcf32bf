package driver

import (
	"context"
	"time"

	"github.com/outmill/outmill/engine/driver"
)

const (
	sqlPut = `INSERT INTO {p:entries} (kind, key, at, made_at, value)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 4 FROM json_each(?1) WHERE true
ON CONFLICT (kind, key) DO UPDATE SET at = excluded.at, made_at = excluded.made_at, value = excluded.value`

	// sqlTake leaves out the entries that exist and whose time has not come.
	sqlTake = sqlPut + `
WHERE at <= ?2 RETURNING kind || ' ' || key`

	sqlAdd = `INSERT INTO {p:entries} (kind, key, at, made_at, value) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (kind, key) DO NOTHING`

	sqlEntries = `SELECT +kind, +key, at, made_at, +value FROM {p:entries}
WHERE (kind, key) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?1))`

	sqlCountEntries = `SELECT (SELECT count(*) FROM {p:entries} WHERE kind = j.value) FROM json_each(?1) AS j ORDER BY j.rowid`

	sqlRange = `SELECT +kind, +key, at, made_at, +value FROM {p:entries} WHERE kind = ?1 AND key >= ?2 AND key < ?3 ORDER BY key LIMIT ?4`

	sqlOld = `SELECT +kind, +key, at, made_at, +value FROM {p:entries} INDEXED BY {p:entries_at}
WHERE kind = ?1 AND at <> 0 AND at <= ?2 ORDER BY at, key LIMIT ?3`

	// sqlDeleteEntries leaves an entry that has another time than the one of the list, unless that is 0.
	sqlDeleteEntries = `DELETE FROM {p:entries} WHERE (kind, key) IN (
	SELECT e.kind, e.key FROM json_each(?1) AS j CROSS JOIN {p:entries} AS e ON e.kind = j.value ->> 0 AND e.key = j.value ->> 1
	WHERE j.value ->> 2 IN (0, e.at))`

	sqlBump = `UPDATE {p:meta} SET routes = routes + ?1, pauses = pauses + ?2 WHERE only_row = 1 RETURNING routes, pauses`
)

// lastKey is behind all keys: the last character of Unicode.
const lastKey = "\U0010FFFF"

func entryList(entries []driver.Entry) string {
	return listOf(entries, func(e *driver.Entry) [5]any { return [5]any{e.Kind, e.Key, int64(e.At), int64(e.Made), e.Value} })
}

func (t *tx) entries(ctx context.Context, template string, args ...any) ([]driver.Entry, error) {
	return list(ctx, t, func(v *values, e *driver.Entry) {
		e.Kind, e.Key, e.At, e.Made, e.Value = v.text(0), v.text(1), driver.Time(v.number(2)), driver.Time(v.number(3)), v.text(4)
	}, template, args...)
}

func (t *tx) Put(ctx context.Context, entries ...driver.Entry) error {
	return t.execEach(ctx, lists{sqlPut, entryList(entries)})
}

func (t *tx) Take(ctx context.Context, entries ...driver.Entry) ([]bool, error) {
	free := make([]bool, len(entries))
	if len(entries) == 0 {
		return free, nil
	}
	is := map[string]bool{}
	_, err := list(ctx, t, func(v *values, _ *struct{}) { is[v.text(0)] = true }, sqlTake, entryList(entries), int64(t.state.Now))
	for i, e := range entries {
		free[i] = is[e.Kind+" "+e.Key]
	}
	return free, err
}

// Add writes an entry that does not exist. There is one writer, so it waits for nobody.
func (t *tx) Add(ctx context.Context, _ time.Duration, e driver.Entry) (bool, error) {
	n, err := t.changed(ctx, sqlAdd, e.Kind, e.Key, int64(e.At), int64(e.Made), e.Value)
	return n > 0, err
}

func (t *tx) Entries(ctx context.Context, _ bool, keys ...driver.Entry) ([]driver.Entry, error) {
	return t.entries(ctx, sqlEntries, entryList(keys))
}

func (t *tx) CountEntries(ctx context.Context, kinds ...string) ([]int, error) {
	return list(ctx, t, func(v *values, n *int) { *n = int(v.number(0)) }, sqlCountEntries, jsonOf(kinds))
}

func (t *tx) Scan(ctx context.Context, kind, prefix string) ([]driver.Entry, error) {
	return t.entries(ctx, sqlRange, kind, prefix, prefix+lastKey, -1)
}

func (t *tx) Range(ctx context.Context, kind, after string, limit int) ([]driver.Entry, error) {
	return t.entries(ctx, sqlRange, kind, after+"\x00", lastKey, limit)
}

func (t *tx) Old(ctx context.Context, kind string, until driver.Time, limit int) ([]driver.Entry, error) {
	return t.entries(ctx, sqlOld, kind, int64(until), limit)
}

func (t *tx) Delete(ctx context.Context, entries ...driver.Entry) error {
	return t.execEach(ctx, lists{sqlDeleteEntries, entryList(entries)})
}

// Bump raises generations. There is one writer, so there is nothing to lock.
func (t *tx) Bump(ctx context.Context, routes, pauses bool) (driver.Generations, error) {
	if !routes && !pauses {
		return t.state.Generations, nil
	}
	_, err := list(ctx, t, func(v *values, _ *struct{}) { t.state.Routes, t.state.Pauses = v.number(0), v.number(1) }, sqlBump, routes, pauses)
	return t.state.Generations, err
}
