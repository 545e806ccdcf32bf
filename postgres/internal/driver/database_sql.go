package driver

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill/storekit"
)

// transactSQL is inPgx on Config.DB: the transaction is a *sql.Tx.
func (d *Driver) transactSQL(ctx context.Context, fn func(ctx context.Context) error) (err error) {
	conn, tx, end, err := d.conns.BeginSQL(ctx, d.config.DB)
	if err != nil {
		return err
	}
	defer func() { end(err) }()
	if limit := d.idle(ctx); limit != "" {
		if _, err := tx.ExecContext(ctx, sqlIdle, limit); err != nil {
			return err
		}
	}
	own := &begun{tx: tx}
	if err = fn(context.WithValue(d.WithTx(ctx, tx), begunBy{d}, own)); err != nil {
		return &callerError{err}
	}
	if err := proveSQL(ctx, conn, tx); err != nil {
		return err
	}
	// Commit does nothing then.
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := committed(tx.Commit()); err != nil {
		return err
	}
	own.Committed()
	return nil
}

// begun is a transaction of database/sql that the driver has begun, and begunBy the key of a context that has it.
type (
	begun struct {
		tx *sql.Tx
		storekit.AfterCommit
	}
	begunBy struct{ *Driver }
)

// proveSQL returns an error if the transaction has ended. It takes a round trip only where the driver is not pgx.
func proveSQL(ctx context.Context, conn *sql.Conn, tx *sql.Tx) error {
	known := false
	err := conn.Raw(func(raw any) error {
		if of, ok := raw.(interface{ Conn() *pgx.Conn }); ok {
			known = true
			return provenOn(of.Conn())
		}
		return nil
	})
	if known || err != nil {
		return err
	}
	return provenSQL(ctx, tx)
}
