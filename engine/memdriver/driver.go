package memdriver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

// Driver is a driver.DB on the database. Several may share one, as processes do. It is safe for concurrent
// use.
type Driver struct{ *Database }

// View runs fn. It is the same as Update, because one transaction runs at a time.
func (d Driver) View(ctx context.Context, begin driver.Begin, fn func(driver.Tx) error) error {
	return d.Update(ctx, begin, fn)
}

// Update runs fn alone.
func (d Driver) Update(ctx context.Context, _ driver.Begin, fn func(driver.Tx) error) error {
	t, err := d.run(ctx, nil, fn)
	if err == nil {
		t.Committed()
	}
	return err
}

// Within runs fn in the caller's transaction.
func (d Driver) Within(ctx context.Context, caller any, fn func(driver.Tx) error) error {
	_, err := d.run(ctx, caller.(*Tx), fn)
	return err
}

func (d Driver) run(ctx context.Context, caller *Tx, fn func(driver.Tx) error) (*tx, error) {
	if err := d.late(ctx); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case !d.made:
		return nil, fmt.Errorf("%w: call Ensure first", outmill.ErrSchemaMissing)
	case caller != nil && caller.ended:
		return nil, storekit.TxGone(nil)
	}
	caller.turn()
	defer caller.turn()
	t := &tx{Database: d.Database, now: d.now(), caller: caller}
	err := fn(t)
	if err == nil {
		// A call that outlives its context fails, as it would in a database.
		err = ctx.Err()
	}
	if err != nil {
		for _, undo := range slices.Backward(t.undo) {
			undo()
		}
	} else if caller != nil {
		caller.onCommit = append(caller.onCommit, t.AfterCommit...)
	}
	return t, err
}

// Transact runs fn in a transaction. See driver.DB.
func (d Driver) Transact(ctx context.Context, fn func(ctx context.Context) error) error {
	if err := d.late(ctx); err != nil {
		return d.Explain(ctx, "transact", err)
	}
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

// Read returns the committed content of rows.
func (d Driver) Read(ctx context.Context, rows []driver.Row, want driver.Want) ([]driver.Content, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.contents(rows, want), ctx.Err()
}

// WithTx returns a context that carries the transaction. See outmill.Writer.
func (d Driver) WithTx(ctx context.Context, t *Tx) context.Context {
	return storekit.ContextWithTx(ctx, d.Database, t)
}

// TxOf returns the transaction of the database that ctx carries.
func (d Driver) TxOf(ctx context.Context) (any, error) {
	return storekit.TxFromContext(ctx, d.Database)
}

// Explain adds the operation to an error.
func (Driver) Explain(_ context.Context, operation string, err error) error {
	return fmt.Errorf("outmill: memory: %s: %w", operation, err)
}

// SharesWith returns the database.
func (d Driver) SharesWith() any { return d.Database }

// Notifier has the hints of all drivers on the database.
func (d Driver) Notifier() *storekit.Notifier { return &d.notifier }

// Ensure makes the database usable.
func (d Driver) Ensure(ctx context.Context) error {
	err := d.late(ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.made = d.made || err == nil
	return err
}

// StatementsFrom is empty: memory has no language.
func (Driver) StatementsFrom(version int) ([]string, error) {
	return nil, storekit.CheckSchemaVersion(version, 1)
}

// Limits has none that a record could reach.
func (Driver) Limits() storekit.RowLimits {
	return storekit.RowLimits{Row: math.MaxInt / 2, Metadata: math.MaxInt / 2, PayloadTimes: 1}
}

// Close does nothing.
func (Driver) Close() error { return nil }

// Tx is a transaction of a caller. Its changes become visible when it commits. While it has changed an entry, no
// other transaction may. It is safe for concurrent use.
type Tx struct {
	db   *Database
	rows []*stored
	// other has the entries that the transaction has changed, as it sees them; nil is deleted. While a call of the
	// transaction runs, the database has those, and other what all others see.
	other    map[entryKey]*driver.Entry
	onCommit storekit.AfterCommit
	// over is closed when the transaction has ended.
	over  chan struct{}
	ended bool
}

// Begin begins a transaction. End it with Commit or Rollback.
func (d *Database) Begin() *Tx {
	return &Tx{db: d, other: map[entryKey]*driver.Entry{}, over: make(chan struct{})}
}

// Commit makes the changes of the transaction visible.
func (t *Tx) Commit() error {
	err := t.end(true)
	if err == nil {
		t.onCommit.Committed()
	}
	return err
}

// Rollback drops them.
func (t *Tx) Rollback() error { return t.end(false) }

func (t *Tx) end(commit bool) (err error) {
	t.db.mu.Lock()
	defer t.db.mu.Unlock()
	if t.ended {
		return fmt.Errorf("%w: it has been committed or rolled back", outmill.ErrInvalidTx)
	}
	close(t.over)
	maps.DeleteFunc(t.db.taken, func(_ entryKey, by *Tx) bool { return by == t })
	if commit {
		err = t.db.unknown(t.rows)
	}
	if commit && err == nil {
		t.turn()
		for _, s := range t.rows {
			t.db.put(s.ID, s)
		}
	}
	t.ended = true
	return err
}

// turn gives the database the entries of other, and other those of the database.
func (t *Tx) turn() {
	if t == nil || t.ended {
		return
	}
	for key, other := range t.other {
		t.other[key] = t.db.entries[key]
		putIn(t.db.entries, key, other)
	}
}
