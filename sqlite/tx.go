package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// Handle is a transaction in which the store can run statements: a *sql.Tx, or another type
// with these methods, such as the ContextExecutor of watermill-sql v3.
type Handle = sqlkit.Handle

// WithTx returns a context that carries tx: with it, Append takes part in that transaction. The
// caller begins and ends the transaction.
//
// tx is a *sql.Tx, a struct (or a pointer to one) that embeds one or has it in an exported
// field, such as bun.Tx, *sqlx.Tx, gorm's tx.Statement.ConnPool, ent's dialect.Tx and the Tx of
// watermill-sql v4, or another [Handle]. The store sends its statements to the *sql.Tx itself
// and not to its wrapper, and treats a transaction as the same one in every wrapper. If a
// wrapper should see the statements, it must keep its *sql.Tx in an unexported field; two such
// wrappers around one transaction count as two transactions.
//
// Calls that use the context refuse a nil, a pool such as *sql.DB, and any other value with
// outmill.ErrInvalidTx. A *sql.Conn counts as a connection on which the caller has sent BEGIN.
//
// SQLite ends a transaction by itself after some errors, such as an interrupted statement, ON
// CONFLICT ROLLBACK or a full database. From then on calls with the context return
// outmill.ErrInvalidTx and write nothing.
//
// An Append in the transaction checks its context at its start and is not interrupted
// afterwards, because SQLite would roll back the caller's whole transaction.
func (s *Store) WithTx(ctx context.Context, tx any) context.Context {
	return sqlkit.WithTx(ctx, s, tx)
}

// TxOf returns the transaction that ctx carries for this store. See
// outmill.Writer.
func (s *Store) TxOf(ctx context.Context) (any, error) {
	return sqlkit.TxOf(ctx, s, s.config.TxFromContext)
}

func (s *Store) txOf(ctx context.Context) (Handle, error) {
	return sqlkit.TxFromOr(ctx, s, s.config.TxFromContext)
}

// InTx runs fn in a transaction that has the write lock from its beginning. It commits if fn
// returns nil, and rolls back if fn returns an error or panics (the panic continues), or if ctx
// has ended. The context that fn gets carries the transaction, so publishers and Append take
// part in it. The commit wakes readers in this process at once.
//
// fn must not call other methods of the store that write (Claim, Ack, …), because they would
// wait for fn's transaction to end.
func (s *Store) InTx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	var topics storekit.TopicSet
	err := s.inTx(storekit.GatherTopics(ctx, s, &topics), fn)
	var own *callerError
	if errors.As(err, &own) {
		return own.err
	}
	if err == nil {
		s.waker.notifier.Notify(topics.List()...)
	}
	return s.explain(ctx, "transaction", err)
}

// callerError is the error of fn. InTx returns it unchanged.
type callerError struct{ err error }

func (e *callerError) Error() string { return e.err.Error() }

func (s *Store) inTx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	if fn == nil {
		return storekit.InvalidConfig("InTx: fn is nil")
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	run := func() error {
		own, err := s.beginWaiting(ctx)
		if err != nil {
			return err
		}
		defer own.discard()
		defer s.waker.forget(own.tx)
		s.writer.HasLock()
		if err := fn(s.WithTx(ctx, own.tx), own.tx); err != nil {
			return &callerError{err}
		}
		return own.commit(ctx)
	}
	if storekit.IsPatient(ctx) {
		return s.inTurnOfHandlers(ctx, run)
	}
	return s.inTurn(ctx, run)
}

// inTurnOfHandlers is inTurn for the handler of a message, which waits until ctx ends. Between
// its attempts at a lock that another process has, it lets other writers of this process pass.
func (s *Store) inTurnOfHandlers(ctx context.Context, fn func() error) error {
	if err := s.handlers.Enter(ctx, forever); err != nil {
		return err
	}
	defer s.handlers.Leave()
	for {
		err := s.inTurn(ctx, fn)
		if !errors.Is(err, storekit.ErrBusy) || ctx.Err() != nil {
			return err
		}
	}
}

func (s *Store) beginWaiting(ctx context.Context) (own *ownTx, err error) {
	err = s.whileBusy(ctx, func() (err error) {
		own, err = s.beginImmediate(ctx)
		return err
	})
	return own, err
}

// within runs fn in the caller's transaction, completely or not at all.
func (s *Store) within(ctx context.Context, operation string, h Handle, fn func(ctx context.Context, t *txn) error) error {
	if err := s.usable(ctx); err != nil {
		return s.explain(ctx, operation, err)
	}
	unlock, err := s.inUse.Lock(ctx, h)
	if err != nil {
		return s.explain(ctx, operation, err)
	}
	defer unlock()
	uncancelled := context.WithoutCancel(ctx)
	if err = proven(uncancelled, h); err == nil {
		err = s.savepoint(uncancelled, h, func() error {
			t, err := s.join(uncancelled, h)
			if err != nil {
				return err
			}
			return fn(uncancelled, t)
		})
	}
	if isBusy(err) {
		err = fmt.Errorf("another connection is writing, or has written since this transaction first read: begin it with BEGIN IMMEDIATE "+
			"(store.InTx, or _txlock=immediate in the DSN), roll it back and try again (%w)", err)
	}
	return s.explain(uncancelled, operation, err)
}

// sqlOutside fails at its BEGIN within a transaction, and changes nothing.
const sqlOutside = "BEGIN; ROLLBACK"

// proven returns an error if the caller's transaction has ended. SQLite ends a transaction by
// itself, such as for an interrupted statement or a full database, and database/sql does not
// notice that. Without this, the store's statements would take effect one by one.
func proven(ctx context.Context, h Handle) error {
	_, err := h.ExecContext(ctx, sqlOutside)
	switch {
	case err == nil:
		return storekit.TxGone(nil)
	case code(err) == sqlite3.SQLITE_ERROR:
		return nil
	}
	return err
}

// proveTx is proven for the transaction that ctx carries.
func (s *Store) proveTx(ctx context.Context) error {
	h, err := s.txOf(ctx)
	if err != nil {
		return err
	}
	unlock, err := s.inUse.Lock(ctx, h)
	if err != nil {
		return err
	}
	defer unlock()
	return proven(context.WithoutCancel(ctx), h)
}

// join returns a txn on the caller's handle. Prepared statements work only in transactions of
// the same *sql.DB. database/sql shows whether that is so only by refusing them. An error of
// SQLite may have ended the transaction.
func (s *Store) join(ctx context.Context, h Handle) (*txn, error) {
	t := &txn{s: s, h: h}
	if tx, ok := h.(*sql.Tx); ok && s.statements.Load() != nil {
		prepared := &txn{s: s, h: h, tx: tx}
		if err := prepared.begin(ctx); err == nil || code(err) != 0 {
			return prepared, err
		}
	}
	return t, t.begin(ctx)
}

func (s *Store) savepoint(ctx context.Context, h Handle, fn func() error) error {
	if _, err := h.ExecContext(ctx, "SAVEPOINT outmill"); err != nil {
		return err
	}
	if err := fn(); err != nil {
		_, undo := h.ExecContext(ctx, "ROLLBACK TO outmill")
		_, release := h.ExecContext(ctx, "RELEASE outmill")
		return errors.Join(err, undo, release)
	}
	_, err := h.ExecContext(ctx, "RELEASE outmill")
	return err
}
