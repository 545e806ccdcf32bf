package driver

import (
	"context"
	"slices"
	"time"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

const (
	sqlPut = `INSERT INTO {p:entries} (kind, name, at, made_at, value) VALUES ?
ON DUPLICATE KEY UPDATE at = VALUES(at), made_at = VALUES(made_at), value = VALUES(value)`
	entryRow = `(?, ?, ?, ?, ?)`

	// sqlReserve locks entries, and makes those that do not exist, as ones whose time has come.
	sqlReserve = `INSERT INTO {p:entries} (kind, name, at, made_at, value) VALUES ?
ON DUPLICATE KEY UPDATE made_at = made_at`

	entryColumns     = `SELECT e.kind, e.name, e.at, e.made_at, e.value FROM {p:entries} AS e`
	sqlEntries       = entryColumns + ` WHERE ?`
	sqlLockEntries   = sqlEntries + ` ORDER BY e.kind, e.name FOR UPDATE`
	sqlEntryNoWait   = sqlEntries + ` FOR UPDATE NOWAIT`
	sqlAdd           = `INSERT INTO {p:entries} (kind, name, at, made_at, value) VALUES (?, ?, ?, ?, ?)`
	sqlCountEntries  = `SELECT kind, COUNT(*) FROM {p:entries} WHERE kind IN (?) GROUP BY kind`
	sqlScan          = entryColumns + ` WHERE e.kind = ? AND e.name >= ? AND e.name < ? ORDER BY e.name`
	sqlRange         = entryColumns + ` WHERE e.kind = ? AND e.name > ? ORDER BY e.name LIMIT ?`
	sqlOld           = entryColumns + ` FORCE INDEX (times) WHERE e.kind = ? AND e.at > 0 AND e.at <= ? ORDER BY e.at, e.name LIMIT ?`
	sqlDeleteEntries = `DELETE FROM {p:entries} WHERE ?`
	namedEntry       = `(kind = ? AND name IN (?))`
	namedEntryAt     = `(kind = ? AND name IN (?) AND at = ?)`
)

// lastName is behind all names: no text in UTF-8 has this byte.
const lastName = "\xff"

// values are the entries as rows of an INSERT.
func (t *tx) values(entries []driver.Entry) (rows fragment) {
	for i, e := range entries {
		if i > 0 {
			rows += ", "
		}
		rows += t.d.part(entryRow, e.Kind, e.Key, e.At, e.Made, e.Value)
	}
	return rows
}

// namedEntries is the condition for the entries with these names, and, withAt, with these times unless they are 0.
func (t *tx) namedEntries(entries []driver.Entry, withAt bool) fragment {
	type list struct {
		kind string
		at   driver.Time
	}
	return inLists(entries, func(e driver.Entry) (list, string) {
		if !withAt {
			e.At = 0
		}
		return list{e.Kind, e.At}, e.Key
	}, func(l list, names []string) fragment {
		if l.at == 0 {
			return t.d.part(namedEntry, l.kind, names)
		}
		return t.d.part(namedEntryAt, l.kind, names, l.at)
	})
}

// Put writes entries.
func (t *tx) Put(ctx context.Context, entries ...driver.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	return t.run(ctx, sqlPut, t.values(entries))
}

// Take writes those entries that are free.
func (t *tx) Take(ctx context.Context, entries ...driver.Entry) ([]bool, error) {
	free := make([]bool, len(entries))
	if len(entries) == 0 {
		return free, nil
	}
	reserved := slices.Clone(entries)
	for i := range reserved {
		reserved[i].At = 0
	}
	if err := t.run(ctx, sqlReserve, t.values(reserved)); err != nil {
		return nil, err
	}
	found, err := list(ctx, t, sqlkit.ReadEntry, sqlLockEntries, t.namedEntries(entries, false))
	if err != nil {
		return nil, err
	}
	var put []driver.Entry
	for i, e := range entries {
		at := slices.IndexFunc(found, func(f driver.Entry) bool { return f.Kind == e.Kind && f.Key == e.Key })
		if free[i] = at >= 0 && found[at].At <= t.state.Now; free[i] {
			put = append(put, e)
			// An entry that the list names again is taken.
			found[at].At = driver.Never
		}
	}
	return free, t.Put(ctx, put...)
}

// Add writes an entry that does not exist. It looks again and again for one that another open transaction has locked: the server's own wait
// counts in seconds, and may end the transaction.
func (t *tx) Add(ctx context.Context, wait time.Duration, e driver.Entry) (added bool, err error) {
	until, waits := time.Now().Add(wait), storekit.NewWaits(time.Millisecond, 20*time.Millisecond)
	for wait > 0 {
		found, err := list(ctx, t, sqlkit.ReadEntry, sqlEntryNoWait, t.namedEntries([]driver.Entry{e}, false))
		if err == nil && len(found) == 0 {
			break
		}
		if !isLocked(err) {
			return false, err
		}
		if time.Now().After(until) {
			return false, driver.ErrBusy
		}
		if err := waits.Wait(ctx); err != nil {
			return false, err
		}
	}
	return t.add(ctx, e)
}

// add writes an entry that does not exist. The number of changed rows depends on the connection's clientFoundRows, so the error says it.
func (t *tx) add(ctx context.Context, e driver.Entry) (added bool, err error) {
	err = t.run(ctx, sqlAdd, e.Kind, e.Key, e.At, e.Made, e.Value)
	if number(err) == errDuplicate {
		return false, nil
	}
	return err == nil, err
}

// Entries returns entries by their names.
func (t *tx) Entries(ctx context.Context, lock bool, keys ...driver.Entry) ([]driver.Entry, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	template := sqlEntries
	if lock {
		template = sqlLockEntries
	}
	return list(ctx, t, sqlkit.ReadEntry, template, t.namedEntries(keys, false))
}

// CountEntries counts the entries of each kind.
func (t *tx) CountEntries(ctx context.Context, kinds ...string) ([]int, error) {
	counts := make([]int, len(kinds))
	if len(kinds) == 0 {
		return counts, nil
	}
	err := t.each(ctx, func(scan scan) error {
		kind, n := "", 0
		err := scan(&kind, &n)
		for i := range kinds {
			if kinds[i] == kind {
				counts[i] = n
			}
		}
		return err
	}, sqlCountEntries, kinds)
	return counts, err
}

// Scan returns entries by a prefix of their names.
func (t *tx) Scan(ctx context.Context, kind, prefix string) ([]driver.Entry, error) {
	return list(ctx, t, sqlkit.ReadEntry, sqlScan, kind, prefix, prefix+lastName)
}

// Range returns the first entries behind a name.
func (t *tx) Range(ctx context.Context, kind, after string, limit int) ([]driver.Entry, error) {
	return list(ctx, t, sqlkit.ReadEntry, sqlRange, kind, after, limit)
}

// Old returns the entries whose time has come.
func (t *tx) Old(ctx context.Context, kind string, until driver.Time, limit int) ([]driver.Entry, error) {
	return list(ctx, t, sqlkit.ReadEntry, sqlOld, kind, until, limit)
}

// Delete deletes entries, but not those that have another time than the one of the list, unless that is 0.
func (t *tx) Delete(ctx context.Context, entries ...driver.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	return t.run(ctx, sqlDeleteEntries, t.namedEntries(entries, true))
}
