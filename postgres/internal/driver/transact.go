package driver

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

// callerError is the error of a function of the caller, which is returned as it is.
type callerError struct{ err error }

func (e *callerError) Error() string { return e.err.Error() }
func (e *callerError) Unwrap() error { return e.err }

// Transact runs fn in a READ COMMITTED transaction, which is a pgx.Tx or, if Config.DB is set, a *sql.Tx of it. See driver.DB.
func (d *Driver) Transact(ctx context.Context, fn func(ctx context.Context) error) error {
	once := func() error {
		return d.inPgx(ctx, d.idle(ctx), func(ctx context.Context, _ pgx.Tx) error { return fn(ctx) })
	}
	if d.config.DB != nil {
		once = func() error { return d.transactSQL(ctx, fn) }
	}
	run := func() error { return d.conns.Repeat(ctx, worthAnother, once) }
	if d.config.DB != nil && d.conns.Pool() != d.config.DB {
		// The handlers' connections are those of another pool.
		return d.callers(ctx, run())
	}
	return d.callers(ctx, d.conns.Admit(ctx, d.config.Logger, run))
}

// InTx runs fn in a READ COMMITTED transaction of the pool, once.
func (d *Driver) InTx(ctx context.Context, fn func(ctx context.Context, tx pgx.Tx) error) error {
	return d.callers(ctx, d.inPgx(ctx, "", fn))
}

// callers returns the error of a function of the caller as it is, and explains any other.
func (d *Driver) callers(ctx context.Context, err error) error {
	var own *callerError
	if errors.As(err, &own) {
		return own.err
	}
	if err != nil {
		return d.Explain(ctx, "transaction", err)
	}
	return nil
}

// worthAnother reports whether fn may succeed if it runs again: not after a commit that nobody knows of.
func worthAnother(err error) bool {
	return (passes(err) || errors.Is(err, driver.ErrBusy)) && !errors.Is(err, storekit.ErrCommitInDoubt)
}

// inPgx runs fn in an openTx, and commits it.
func (d *Driver) inPgx(ctx context.Context, limit string, fn func(ctx context.Context, tx pgx.Tx) error) (err error) {
	own, err := d.begin(ctx)
	if err != nil {
		return err
	}
	t := &openTx{ownTx: own, ctx: ctx, limit: limit}
	defer func() { t.end(ctx, err) }()
	if err = fn(d.WithTx(ctx, t), t); err != nil {
		return &callerError{err}
	}
	if err = t.commit(ctx); err != nil {
		return err
	}
	t.onCommit.Committed()
	return nil
}
