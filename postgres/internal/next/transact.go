package next

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

// openTx is a transaction of Transact.
type openTx struct {
	pgx.Tx
	onCommit storekit.AfterCommit
}

// callerError is the error of a function of the caller, which is returned as it is.
type callerError struct{ err error }

func (e *callerError) Error() string { return e.err.Error() }
func (e *callerError) Unwrap() error { return e.err }

// Transact runs fn in a READ COMMITTED transaction, which is a pgx.Tx or, if Config.DB is set, a *sql.Tx of it. See driver.DB.
func (d *Driver) Transact(ctx context.Context, fn func(ctx context.Context) error) error {
	once := d.transactOnce
	if d.config.DB != nil {
		once = d.transactSQL
	}
	err := storekit.Repeat(ctx, worthAnother, func() error { return once(ctx, fn) })
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

func (d *Driver) transactOnce(ctx context.Context, fn func(ctx context.Context) error) (err error) {
	own, err := d.begin(ctx)
	if err != nil {
		return err
	}
	defer func() { own.end(ctx, err) }()
	tx, err := own.conn.BeginTx(ctx, d.opens(ctx))
	if err != nil {
		return err
	}
	t := &openTx{Tx: tx}
	if err = fn(d.WithTx(ctx, t)); err != nil {
		return &callerError{err}
	}
	// PostgreSQL commits without an error if there is no transaction.
	if err = provenPgx(ctx, tx); err != nil {
		return err
	}
	if err = ctx.Err(); err != nil {
		return err
	}
	if err = own.committing(func() error { return tx.Commit(ctx) }); err != nil {
		return err
	}
	t.onCommit.Committed()
	return nil
}
