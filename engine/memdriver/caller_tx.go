package memdriver

import (
	"errors"
	"maps"

	"github.com/outmill/outmill/engine/driver"
)

// Tx is a transaction of a caller. Its rows and entries come with the commit. It is safe for concurrent use.
type Tx struct {
	db       *Database
	rows     []driver.NewRow
	entries  []driver.Entry
	onCommit []func()
	ended    bool
}

var errEnded = errors.New("the transaction has been committed or rolled back")

// Begin begins a transaction. End it with Commit or Rollback.
func (d *Database) Begin() *Tx { return &Tx{db: d} }

// Commit makes the changes of the transaction visible.
func (t *Tx) Commit() error {
	then, err := t.end(true)
	for _, fn := range then {
		fn()
	}
	return err
}

// Rollback drops them.
func (t *Tx) Rollback() error {
	_, err := t.end(false)
	return err
}

func (t *Tx) end(commit bool) (then []func(), err error) {
	t.db.mu.Lock()
	defer t.db.mu.Unlock()
	if t.ended {
		return nil, errEnded
	}
	t.ended = true
	maps.DeleteFunc(t.db.taken, func(_ entryKey, by *Tx) bool { return by == t })
	if !commit {
		return nil, nil
	}
	for _, e := range t.entries {
		t.db.entries[entryKey{e.Kind, e.Key}] = e
	}
	for _, r := range t.rows {
		t.db.insert(r)
	}
	return t.onCommit, nil
}

func (t *Tx) then(fns []func()) {
	t.db.mu.Lock()
	defer t.db.mu.Unlock()
	t.onCommit = append(t.onCommit, fns...)
}
