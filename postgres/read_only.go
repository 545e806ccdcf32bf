package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// After a failover, sessions on the former primary may stay open while it accepts no writes any
// more. A pool keeps such connections for an hour, and nobody else heals it, so the store closes
// each of its own on which a write was refused.

// sqlWritable asks whether this session may write. A standby answers that it may not.
const sqlWritable = `SELECT pg_catalog.current_setting('transaction_read_only') OPERATOR(pg_catalog.=) 'off'
	AND NOT pg_catalog.pg_is_in_recovery()`

// isReadOnly reports whether the server accepts no writes in this session: 25006, also "cannot
// execute … during recovery", and 57P03, which a proxy may answer for it.
func isReadOnly(err error) bool {
	switch code(err) {
	case codeReadOnly, codeNotNow:
		return true
	}
	return false
}

// readOnly explains the error of a refused write.
func readOnly(err error) error {
	return fmt.Errorf("%w, as after a failover that left the connection to the former primary open. The store closes its own connections of "+
		"this kind. If the transaction is yours, close its connection, so that your pool opens another: Reset of a pgxpool.Pool, or Raw "+
		"of a *sql.Conn with driver.ErrBadConn (%w)", storekit.ErrReadOnly, err)
}

// giveBack returns a connection to the pool after a call that ended with err. A connection on which
// the server accepts no writes is closed, and with it all others of a pool that the store opened.
func (s *Store) giveBack(conn *lent, err error) {
	if isReadOnly(err) {
		s.refused.Store(true)
		hangUp(context.Background(), conn.Conn)
		if s.ownsPool {
			s.pool.Reset()
		}
	}
	conn.release()
}

// repeat is storekit.Repeat. It also repeats after a connection on which the server accepts no
// writes, as often as there may be such connections in the pool.
func (s *Store) repeat(ctx context.Context, passes func(error) bool, fn func() error) error {
	again := 1
	if !s.ownsPool {
		again = s.conns.open()
	}
	return storekit.Repeat(ctx, func(err error) bool {
		if code(err) != codeReadOnly {
			return passes(err)
		}
		again--
		return again >= 0
	}, fn)
}

// inPoolTx runs fn in a READ COMMITTED transaction on a connection of the pool.
func (s *Store) inPoolTx(ctx context.Context, fn func(tx pgx.Tx) error) (err error) {
	conn, err := s.conns.acquire(ctx)
	if err != nil {
		return err
	}
	defer func() { s.giveBack(conn, err) }()
	return pgx.BeginTxFunc(ctx, conn, ofOpenTx, fn)
}

// beginSQL begins a transaction of the user's *sql.DB. end must be called with the error of the
// whole transaction.
func (s *Store) beginSQL(ctx context.Context) (conn *sql.Conn, tx *sql.Tx, end func(error), err error) {
	conn, err = s.config.DB.Conn(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	giveBack := func(err error) {
		if isReadOnly(err) {
			s.refused.Store(true)
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

// CheckWrites asks whether the server accepts writes again, after it has refused one. See
// storekit.WriteChecker.
func (s *Store) CheckWrites(ctx context.Context) error {
	if !s.refused.Load() {
		return nil
	}
	writable, err := s.writable(ctx)
	if err != nil {
		return s.explain(ctx, "check writes", err)
	}
	if !writable {
		return s.explain(ctx, "check writes", storekit.ErrReadOnly)
	}
	s.refused.Store(false)
	return nil
}

func (s *Store) writable(ctx context.Context) (writable bool, err error) {
	err = s.safe().QueryRow(ctx, sqlWritable).Scan(&writable)
	return writable, err
}

// examineWrites looks whether the server accepts writes.
func (s *Store) examineWrites(ctx context.Context, e *roles.Examination) error {
	writable, err := s.writable(ctx)
	if err == nil && !writable {
		e.Add(storekit.StoreFinding(storekit.ErrReadOnly))
	}
	return err
}

var _ storekit.WriteChecker = (*Store)(nil)

// stillWrites returns an error if the session of a listening connection could write at its begin
// and cannot any more: notifications come from another server then.
func (l *listener) stillWrites(conn *pgx.Conn, before *bool) error {
	ctx, cancel := context.WithTimeout(l.ctx, min(answersWithin, l.heartbeat))
	defer cancel()
	var writable bool
	if err := conn.QueryRow(ctx, sqlWritable, pgx.QueryExecModeSimpleProtocol).Scan(&writable); err != nil {
		return err
	}
	if *before && !writable {
		return storekit.ErrReadOnly
	}
	*before = writable
	return nil
}
