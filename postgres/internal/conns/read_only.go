package conns

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill/storekit"
)

// After a failover, sessions on the former primary may stay open while it accepts no writes any more. A pool keeps such connections for
// an hour, and nobody else heals it, so the store closes each of its own on which a write was refused.

// SQLWritable asks whether this session may write. A standby answers that it may not.
const SQLWritable = `SELECT pg_catalog.current_setting('transaction_read_only') OPERATOR(pg_catalog.=) 'off'
	AND NOT pg_catalog.pg_is_in_recovery()`

const (
	codeReadOnly = "25006"
	// codeNotNow may be what a proxy answers for it.
	codeNotNow = "57P03"

	// hangUpWithin is the time for the end of a connection.
	hangUpWithin = time.Second
)

// code returns PostgreSQL's code of the error, "" if err is not PostgreSQL's.
func code(err error) string {
	var e interface{ SQLState() string }
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

// IsReadOnly reports whether the server accepts no writes in this session.
func IsReadOnly(err error) bool {
	found := code(err)
	return found == codeReadOnly || found == codeNotNow
}

// ReadOnly explains the error of a refused write.
func ReadOnly(err error) error {
	return fmt.Errorf("%w, as after a failover that left the connection to the former primary open. The store closes its own connections of "+
		"this kind. If the transaction is yours, close its connection, so that your pool opens another: Reset of a pgxpool.Pool, or Raw "+
		"of a *sql.Conn with driver.ErrBadConn (%w)", storekit.ErrReadOnly, err)
}

// HangUp closes a connection.
func HangUp(ctx context.Context, conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), hangUpWithin)
	defer cancel()
	_ = conn.Close(ctx)
}

// GiveBack returns a connection to the pool after a call that ended with err. A connection on which the server accepts no writes is
// closed, and with it all others of a pool that Open made.
func (c *Conns) GiveBack(conn *Lent, err error) {
	if IsReadOnly(err) {
		c.refused.Store(true)
		HangUp(context.Background(), conn.Conn)
		if c.owned != nil {
			c.owned.pool.Reset()
		}
	}
	conn.Release()
}

// Repeat is storekit.Repeat. It also repeats after a connection on which the server accepts no writes, as often as there may be such
// connections in the pool.
func (c *Conns) Repeat(ctx context.Context, passes func(error) bool, fn func() error) error {
	again := 1
	if c.owned == nil {
		again = c.open()
	}
	return storekit.Repeat(ctx, func(err error) bool {
		if code(err) != codeReadOnly {
			return passes(err)
		}
		again--
		return again >= 0
	}, fn)
}

// BeginSQL begins a READ COMMITTED transaction of a *sql.DB. end must be called with the error of the whole transaction.
func (c *Conns) BeginSQL(ctx context.Context, db *sql.DB) (conn *sql.Conn, tx *sql.Tx, end func(error), err error) {
	conn, err = db.Conn(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	giveBack := func(err error) {
		if IsReadOnly(err) {
			c.refused.Store(true)
			_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		}
		_ = conn.Close()
	}
	tx, err = conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		giveBack(err)
		return nil, nil, nil, err
	}
	return conn, tx, func(err error) {
		_ = tx.Rollback()
		giveBack(err)
	}, nil
}

// CheckWrites calls writable, which asks the server with SQLWritable, after the server has refused a write, until it accepts writes
// again. See storekit.WriteChecker.
func (c *Conns) CheckWrites(writable func() (bool, error)) error {
	if !c.refused.Load() {
		return nil
	}
	switch ok, err := writable(); {
	case err != nil:
		return err
	case !ok:
		return storekit.ErrReadOnly
	}
	c.refused.Store(false)
	return nil
}
