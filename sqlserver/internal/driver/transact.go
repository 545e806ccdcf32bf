package driver

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill/storekit"
)

// callerError is the error of a function of the caller, which is returned as it is.
type callerError struct{ err error }

func (e *callerError) Error() string { return e.err.Error() }
func (e *callerError) Unwrap() error { return e.err }

// Transact runs fn in a READ COMMITTED transaction, which is a *sql.Tx. See driver.DB.
func (d *Driver) Transact(ctx context.Context, fn func(ctx context.Context) error) error {
	return d.callers(ctx, d.admission.Run(ctx, d.handlers(), d.tellWaiting, func() error {
		return storekit.Repeat(ctx, judge.PassesForCaller, func() error {
			return d.transact(ctx, func(ctx context.Context, own *sql.Tx) error {
				if _, err := own.ExecContext(ctx, sqlAbort); err != nil {
					return err
				}
				if err := fn(ctx); err != nil {
					return &callerError{err}
				}
				// go-mssqldb refuses the statement if the server has ended the transaction.
				t := &tx{d: d, on: own, callers: true}
				return t.query(ctx, "prove", nil)
			})
		})
	}))
}

// sqlAbort has any error end the transaction, so that no part of it can be committed. It has no parameter, so it holds for the
// session, until the connection is used again.
const sqlAbort = "SET XACT_ABORT ON"

// InTx runs fn in a READ COMMITTED transaction of the pool, once.
func (d *Driver) InTx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	return d.callers(ctx, d.transact(ctx, func(ctx context.Context, own *sql.Tx) error {
		if err := fn(ctx, own); err != nil {
			return &callerError{err}
		}
		return nil
	}))
}

// transact runs fn in a transaction that its context carries, and runs behind the commit what calls in it have left for then.
func (d *Driver) transact(ctx context.Context, fn func(ctx context.Context, own *sql.Tx) error) error {
	then := &storekit.AfterCommit{}
	err := d.in(ctx, func(own *sql.Tx) error {
		d.begun.Store(own, then)
		defer d.begun.Delete(own)
		return fn(d.WithTx(ctx, own), own)
	})
	if err == nil {
		then.Committed()
	}
	return err
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

// moreConns is the remedy for a pool that is too small.
const moreConns = "Raise SetMaxOpenConns of the *sql.DB"

// handlers is how many transactions of handlers have a connection at a time; 0 is no limit.
func (d *Driver) handlers() int { return storekit.HandlersOf(d.db.Stats().MaxOpenConnections) }

// tellWaiting logs that handlers wait for connections.
func (d *Driver) tellWaiting() {
	if d.config.Log == nil {
		return
	}
	d.config.Log.Info("More handlers want a transaction than the pool has connections for, so they wait for each other; one connection "+
		"is kept for claims and leases. "+moreConns+", or lower subscriber.Config.MaxInFlight",
		watermill.LogFields{"connections": d.handlers() + 1})
}

// TxLimit is 0, because SQL Server has no limit.
func (d *Driver) TxLimit() time.Duration { return 0 }
