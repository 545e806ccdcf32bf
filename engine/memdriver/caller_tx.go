package memdriver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

// Tx is a transaction of a caller. Its rows and entries come with the commit. While it has changed an entry, no
// other transaction may. It is safe for concurrent use.
type Tx struct {
	db   *Database
	rows []driver.NewRow
	// other has the entries that the transaction has changed, as it sees them; nil is deleted. While a call of the
	// transaction runs, the database has those, and other what all others see.
	other    map[entryKey]*driver.Entry
	onCommit []func()
	// over is closed when the transaction has ended.
	over  chan struct{}
	ended bool
}

var errEnded = fmt.Errorf("%w: it has been committed or rolled back", outmill.ErrInvalidTx)

// Begin begins a transaction. End it with Commit or Rollback.
func (d *Database) Begin() *Tx {
	return &Tx{db: d, other: map[entryKey]*driver.Entry{}, over: make(chan struct{})}
}

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
	defer func() { t.ended = true }()
	close(t.over)
	maps.DeleteFunc(t.db.taken, func(_ entryKey, by *Tx) bool { return by == t })
	if !commit {
		return nil, nil
	}
	if err := t.db.unknown(t.rows); err != nil {
		return nil, err
	}
	t.turn()
	for _, r := range t.rows {
		t.db.put(r.ID, newRow(r))
	}
	return t.onCommit, nil
}

// turn gives the database the entries of other, and other those of the database.
func (t *Tx) turn() {
	if t.ended {
		return
	}
	for key, other := range t.other {
		t.other[key] = t.db.entries[key]
		putIn(t.db.entries, key, other)
	}
}

func (t *Tx) then(fns []func()) {
	t.db.mu.Lock()
	defer t.db.mu.Unlock()
	t.onCommit = append(t.onCommit, fns...)
}

// Transact runs fn in a transaction. See driver.DB.
func (d Driver) Transact(ctx context.Context, fn func(ctx context.Context) error) error {
	passes := func(err error) bool { return errors.Is(err, driver.ErrBusy) }
	return storekit.Repeat(ctx, passes, func() error {
		tx := d.Begin()
		// After a commit it does nothing.
		defer func() { _ = tx.Rollback() }()
		if err := fn(d.WithTx(ctx, tx)); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		return tx.Commit()
	})
}

// TxLimit is 0.
func (Driver) TxLimit() time.Duration { return 0 }

// mayChange returns an error if another open transaction has changed the entry. Otherwise that of the caller has
// from now on.
func (t *tx) mayChange(key entryKey) error {
	switch by := t.taken[key]; {
	case by != nil && by != t.caller:
		return fmt.Errorf("%s %q: %w", key.kind, key.key, driver.ErrBusy)
	case by == nil && t.caller != nil:
		t.taken[key], t.caller.other[key] = t.caller, t.entries[key]
	}
	return nil
}

// outside runs fn while the database is as others see it.
func (t *tx) outside(fn func()) {
	if t.caller != nil {
		t.caller.turn()
		defer t.caller.turn()
	}
	fn()
}

// await waits until the transaction has ended that has changed the entry, and reports whether that happened in
// time. Others may work until then, so it is for calls that have changed nothing yet.
func (t *tx) await(ctx context.Context, by *Tx, until <-chan time.Time) (over bool) {
	t.outside(func() {
		t.mu.Unlock()
		defer t.mu.Lock()
		select {
		case <-by.over:
			over = true
		case <-until:
		case <-ctx.Done():
		}
	})
	return over
}
