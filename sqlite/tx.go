package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// Handle is a transaction that the store can run statements in: *sql.Tx, or
// anything else with these methods, such as the ContextExecutor of watermill-sql
// v3.
type Handle = sqlkit.Handle

// WithTx returns a context that carries tx: with it, Append takes part in
// that transaction. The transaction stays the caller's, who begins and ends
// it.
//
// tx is a *sql.Tx, a struct (or a pointer to one) that embeds one or has it in an
// exported field, such as bun.Tx, *sqlx.Tx, gorm's tx.Statement.ConnPool, ent's
// dialect.Tx and the Tx of watermill-sql v4, or another [Handle]. The store's
// statements go to the *sql.Tx itself, past what wraps it, and a transaction is
// the same one however it is wrapped. A wrapper that is to see the statements keeps
// its *sql.Tx in a field that is not exported; two such wrappers around one
// transaction count as two transactions.
//
// A nil, a pool such as *sql.DB, and anything else is refused with
// outmill.ErrInvalidTx by whatever uses the context. A *sql.Conn is taken for
// a connection on which the caller has said BEGIN.
//
// An Append in the transaction checks its context before it begins and is then
// not interrupted: SQLite would roll the caller's whole transaction back.
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

// InTx runs fn in a transaction that has the write lock from its beginning,
// commits if fn returns nil, and rolls back if it returns an error, panics
// (the panic goes on) or ctx has ended. The context that fn gets carries the
// transaction, so publishers and Append take part in it. Readers in this
// process are woken as soon as it is committed.
//
// fn must not call other methods of the store that write (Claim, Ack, …):
// they would wait for fn's transaction to end.
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

// callerError is what fn returned: InTx gives it back as it is.
type callerError struct{ err error }

func (e *callerError) Error() string { return e.err.Error() }

func (s *Store) inTx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	if fn == nil {
		return storekit.InvalidConfig("InTx: fn is nil")
	}
	if err := s.ready(ctx); err != nil {
		return err
	}
	return s.inTurn(ctx, func() error {
		own, err := s.beginPatiently(ctx)
		if err != nil {
			return err
		}
		defer own.discard()
		defer s.waker.forget(own.tx)
		if err := fn(s.WithTx(ctx, own.tx), own.tx); err != nil {
			return &callerError{err}
		}
		return own.commit(ctx)
	})
}

func (s *Store) beginPatiently(ctx context.Context) (own *ownTx, err error) {
	err = s.whileBusy(ctx, func() (err error) {
		own, err = s.beginImmediate(ctx)
		return err
	})
	return own, err
}

// within runs fn in the caller's transaction, all of it or nothing.
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
	err = s.savepoint(uncancelled, h, func() error {
		t, err := s.join(uncancelled, h)
		if err != nil {
			return err
		}
		return fn(uncancelled, t)
	})
	if isBusy(err) {
		err = fmt.Errorf("another connection is writing, or has written since this transaction first read: begin it with BEGIN IMMEDIATE "+
			"(store.InTx, or _txlock=immediate in the DSN), roll it back and try again (%w)", err)
	}
	return s.explain(uncancelled, operation, err)
}

// join makes a txn of the caller's handle. Prepared statements serve only
// transactions of the same *sql.DB, which database/sql tells in no other way
// than by refusing them.
func (s *Store) join(ctx context.Context, h Handle) (*txn, error) {
	t := &txn{s: s, h: h}
	if tx, ok := h.(*sql.Tx); ok && s.statements.Load() != nil {
		prepared := &txn{s: s, h: h, tx: tx}
		if err := prepared.begin(ctx); err == nil {
			return prepared, nil
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
