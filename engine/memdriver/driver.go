package memdriver

import (
	"context"
	"fmt"
	"math"
	"slices"

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
		t.committed()
	}
	return err
}

// Within runs fn in the caller's transaction.
func (d Driver) Within(ctx context.Context, caller any, fn func(driver.Tx) error) error {
	tx := caller.(*Tx)
	t, err := d.run(ctx, tx, fn)
	if err == nil {
		tx.then(t.onCommit)
	}
	return err
}

func (d Driver) run(ctx context.Context, caller *Tx, fn func(driver.Tx) error) (*tx, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case !d.made:
		return nil, fmt.Errorf("%w: call Ensure first", outmill.ErrSchemaMissing)
	case caller != nil && caller.ended:
		return nil, storekit.TxGone(nil)
	}
	if caller != nil {
		caller.turn()
		defer caller.turn()
	}
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
	}
	return t, err
}

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
func (d Driver) Explain(_ context.Context, operation string, err error) error {
	return fmt.Errorf("outmill: memory: %s: %w", operation, err)
}

// SharesWith returns the database.
func (d Driver) SharesWith() any { return d.Database }

// Notifier has the hints of all drivers on the database.
func (d Driver) Notifier() *storekit.Notifier { return &d.notifier }

// Ensure makes the database usable.
func (d Driver) Ensure(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.made = d.made || ctx.Err() == nil
	return ctx.Err()
}

// Statements is empty: memory has no language.
func (Driver) Statements() []string { return nil }

// StatementsFrom is empty, too.
func (Driver) StatementsFrom(version int) ([]string, error) {
	return nil, storekit.CheckSchemaVersion(version, 1)
}

// Limits has none that a record could reach.
func (Driver) Limits() storekit.RowLimits {
	return storekit.RowLimits{Row: math.MaxInt / 2, Metadata: math.MaxInt / 2, PayloadTimes: 1}
}

// Close does nothing.
func (Driver) Close() error { return nil }
