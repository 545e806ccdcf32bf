package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/outmill/outmill/internal/crash"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite/internal/turnstile"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

const (
	// sqlLock changes nothing, but takes the write lock: a deferred transaction that begins
	// with it behaves like an immediate one.
	sqlLock = `UPDATE {p:meta} SET version = version WHERE only_row = 0`

	// sqlHeader begins every transaction: it reads the schema's version, reads the clock once
	// for all statements, and returns whether any key is blocked and any join has steps, whether
	// the pauses have changed, and whether any record is aside and any key blocked for a pause.
	sqlHeader = `SELECT version, generation, CAST(round(unixepoch('subsec') * 1000) AS INTEGER) * 1000,
	EXISTS (SELECT 1 FROM {p:lanes}), EXISTS (SELECT 1 FROM {p:join_members}),
	pauses, EXISTS (SELECT 1 FROM {p:records} INDEXED BY {p:aside} WHERE stage = -1),
	EXISTS (SELECT 1 FROM {p:lanes} INDEXED BY {p:lanes_paused} WHERE paused_by IS NOT NULL) FROM {p:meta} WHERE only_row = 1`
)

// forever is longer than any wait: the context ends it.
const forever = 100 * 365 * 24 * time.Hour

const (
	firstPause = time.Millisecond
	lastPause  = 50 * time.Millisecond
)

// txn is one transaction: the store's own, or the caller's.
type txn struct {
	s *Store
	h sqlkit.Handle
	// tx is set if prepared statements can be used.
	tx *sql.Tx
	// kept are the statements of a read transaction that are not prepared for the whole handle.
	// A call such as Stats runs them once for each topic, and preparing one takes longer than
	// running it. They end with the transaction; nil keeps none.
	kept map[string]*sql.Stmt
	// now is the database's clock in microseconds, the same for all statements.
	now int64
	// generation moves when the registered groups change.
	generation int64
	// lanes reports whether there are lanes.
	lanes bool
	// pauseGeneration moves when the pauses change, and pauses has them.
	pauseGeneration int64
	pauses          *roles.PauseList
	// asides reports whether any record is aside; pausedLanes, whether a pause blocks a key.
	asides, pausedLanes bool
	// steps reports whether any join has steps.
	steps bool
	// decided: this transaction decides a join, and records may wait for it.
	decided bool
}

// begin reads the header.
func (t *txn) begin(ctx context.Context) error {
	var version int
	// If there is no row, version stays 0: the schema was being created when the process was
	// lost.
	header := []any{&version, &t.generation, &t.now, &t.lanes, &t.steps, &t.pauseGeneration, &t.asides, &t.pausedLanes}
	if _, err := t.one(ctx, header, sqlHeader); err != nil {
		return err
	}
	if err := versionError(version); err != nil {
		return err
	}
	return t.readPauses(ctx)
}

func (t *txn) statement(ctx context.Context, template string) *sql.Stmt {
	if t.tx == nil {
		return nil
	}
	prepared := t.s.statements.Load()
	if prepared == nil {
		return nil
	}
	statement, ok := (*prepared)[template]
	if !ok {
		return nil
	}
	return t.tx.StmtContext(ctx, statement)
}

func (t *txn) query(ctx context.Context, template string, args ...any) (*sql.Rows, error) {
	if statement := t.statement(ctx, template); statement != nil { //nolint:sqlclosecheck // ends with its transaction
		return statement.QueryContext(ctx, args...)
	}
	if t.kept == nil {
		return t.h.QueryContext(ctx, t.s.sql.text(template), args...)
	}
	statement := t.kept[template]
	if statement == nil {
		var err error
		if statement, err = t.tx.PrepareContext(ctx, t.s.sql.text(template)); err != nil {
			return nil, err
		}
		t.kept[template] = statement
	}
	return statement.QueryContext(ctx, args...)
}

func (t *txn) run(ctx context.Context, template string, args ...any) (sql.Result, error) {
	if statement := t.statement(ctx, template); statement != nil { //nolint:sqlclosecheck // ends with its transaction
		return statement.ExecContext(ctx, args...)
	}
	return t.h.ExecContext(ctx, t.s.sql.text(template), args...)
}

// exec returns the number of rows that the statement changed.
func (t *txn) exec(ctx context.Context, template string, args ...any) (int, error) {
	result, err := t.run(ctx, template, args...)
	if err != nil {
		return 0, err
	}
	n, err := result.RowsAffected()
	return int(n), err
}

// write runs fn in a write transaction of the store's own. It repeats fn if the database is
// busy.
func (s *Store) write(ctx context.Context, operation string, fn func(ctx context.Context, t *txn) error) error {
	return s.explain(ctx, operation, s.tryWrite(ctx, fn))
}

func (s *Store) tryWrite(ctx context.Context, fn func(ctx context.Context, t *txn) error) error {
	if err := s.ready(ctx); err != nil {
		return err
	}
	return s.inTurn(ctx, func() error {
		ctx, cancel := turnstile.AtLeast(ctx)
		defer cancel()
		return s.whileBusy(ctx, func() error { return s.writeOnce(ctx, fn) })
	})
}

// inTurn runs fn while no other write transaction of the store is running.
func (s *Store) inTurn(ctx context.Context, fn func() error) error {
	err := s.writer.Enter(ctx, s.config.BusyTimeout)
	if errors.Is(err, turnstile.ErrHeld) {
		return s.busy(err)
	}
	if err != nil {
		return err
	}
	defer s.writer.Leave()
	return fn()
}

// whileBusy repeats fn, with growing pauses, until the database is not busy.
func (s *Store) whileBusy(ctx context.Context, fn func() error) error {
	deadline := time.Now().Add(s.config.BusyTimeout)
	waits := storekit.NewWaits(firstPause, lastPause)
	for {
		err := fn()
		if err == nil || !isBusy(err) {
			return err
		}
		if time.Now().After(deadline) {
			return s.busy(err)
		}
		if err := waits.Wait(ctx); err != nil {
			return err
		}
	}
}

func (s *Store) busy(err error) error {
	return fmt.Errorf("%w for %s: look for one that stays open too long, in this process or another (%w)", storekit.ErrBusy,
		s.config.BusyTimeout, err)
}

func (s *Store) writeOnce(ctx context.Context, fn func(ctx context.Context, t *txn) error) error {
	own, err := s.beginImmediate(ctx)
	if err != nil {
		return err
	}
	defer own.discard()
	t := &txn{s: s, h: own.tx, tx: own.tx}
	if err := t.begin(ctx); err != nil {
		return err
	}
	if err := fn(ctx, t); err != nil {
		return err
	}
	return own.commit(ctx)
}

// ownTx is a transaction of the store's own on a connection of the pool.
type ownTx struct {
	conn *sql.Conn
	tx   *sql.Tx
}

// beginImmediate returns a transaction that has the write lock, or a busy error at once. The
// caller waits instead, because SQLite's own busy handler does not stop when ctx ends.
//
// The transaction does not end with ctx by itself: database/sql would roll it back while the
// caller still uses it.
func (s *Store) beginImmediate(ctx context.Context) (*ownTx, error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	own := &ownTx{conn: conn}
	if err := s.lock(ctx, own); err != nil {
		own.discard()
		return nil, err
	}
	return own, nil
}

func (s *Store) lock(ctx context.Context, own *ownTx) (err error) {
	uncancelled := context.WithoutCancel(ctx)
	var patience int
	if err := own.conn.QueryRowContext(uncancelled, "PRAGMA busy_timeout").Scan(&patience); err != nil {
		return err
	}
	if patience > 0 {
		if err := setBusyTimeout(uncancelled, own.conn, 0); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, setBusyTimeout(uncancelled, own.conn, patience)) }()
	}
	if own.tx, err = own.conn.BeginTx(uncancelled, nil); err != nil {
		return err
	}
	_, err = (&txn{s: s, h: own.tx, tx: own.tx}).exec(ctx, sqlLock)
	return err
}

func setBusyTimeout(ctx context.Context, conn *sql.Conn, milliseconds int) error {
	_, err := conn.ExecContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", milliseconds))
	return err
}

// commit commits unless ctx has ended: work that the caller has given up is not done.
func (o *ownTx) commit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	crash.At(crash.BeforeCommit)
	err := o.tx.Commit()
	crash.At(crash.AfterCommit)
	if err != nil && mayBeCommitted(err) {
		err = storekit.CommitInDoubt(err)
	}
	return err
}

// discard rolls back uncommitted changes and returns the connection to the pool. If the
// connection may still be in a transaction, it closes it.
func (o *ownTx) discard() {
	if o.tx != nil {
		err := o.tx.Rollback()
		if err != nil && !errors.Is(err, sql.ErrTxDone) && code(err) != sqlite3.SQLITE_ERROR {
			_ = o.conn.Raw(func(any) error { return driver.ErrBadConn })
		}
	}
	_ = o.conn.Close()
}

// read runs fn in a read transaction. It sees one state of the database, and in WAL mode it
// does not wait for writers.
func (s *Store) read(ctx context.Context, operation string, fn func(ctx context.Context, t *txn) error) error {
	return s.explain(ctx, operation, s.tryRead(ctx, fn))
}

func (s *Store) tryRead(ctx context.Context, fn func(ctx context.Context, t *txn) error) error {
	if err := s.readyToRead(ctx); err != nil {
		return err
	}
	err := s.whileBusy(ctx, func() error { return s.readOnce(ctx, fn) })
	if code(err) == sqlite3.SQLITE_ERROR {
		// A table or column is missing where the schema is not this program's.
		err = cmp.Or(s.checkSchema(ctx, s.db), err)
	}
	return err
}

func (s *Store) readOnce(ctx context.Context, fn func(ctx context.Context, t *txn) error) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	own := &ownTx{conn: conn}
	defer own.discard()
	if own.tx, err = conn.BeginTx(context.WithoutCancel(ctx), &sql.TxOptions{ReadOnly: true}); err != nil {
		return err
	}
	t := &txn{s: s, h: own.tx, tx: own.tx, kept: map[string]*sql.Stmt{}}
	if err := t.begin(ctx); err != nil {
		return err
	}
	return fn(ctx, t)
}
