package driver

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/mongo/internal/mongoerr"
	"github.com/outmill/outmill/storekit"
)

// WithTx returns a context that carries the session's transaction, for the driver of MongoDB, too.
func (d *Driver) WithTx(ctx context.Context, session *mongo.Session) context.Context {
	return storekit.ContextWithTx(mongo.NewSessionContext(ctx, session), d, session)
}

// TxOf returns the session that ctx carries with a transaction of this client.
func (d *Driver) TxOf(ctx context.Context) (any, error) {
	carried, err := storekit.TxFromContext(ctx, d)
	if carried != nil {
		session := carried.(*mongo.Session)
		if err := d.check(session); err != nil {
			return nil, err
		}
		return session, nil
	}
	session := mongo.SessionFromContext(ctx)
	switch {
	case session == nil || !d.running(session):
		return nil, err
	case session.Client() != d.client:
		return nil, outmill.ErrForeignTx
	}
	return session, nil
}

func (d *Driver) check(session *mongo.Session) error {
	switch {
	case session == nil:
		return fmt.Errorf("%w: the session is nil", outmill.ErrInvalidTx)
	case session.Client() != d.client:
		return fmt.Errorf("%w: the session is that of another client than the store's", outmill.ErrInvalidTx)
	case !d.running(session):
		return fmt.Errorf("%w: the session has no transaction: call its StartTransaction, or use its WithTransaction", outmill.ErrInvalidTx)
	}
	return nil
}

// running reports whether the session has a transaction. Sessions are not safe for concurrent use, so it waits for a call that uses it.
func (d *Driver) running(session *mongo.Session) bool {
	unlock, err := d.inUse.Lock(context.Background(), session)
	if err != nil {
		return false
	}
	defer unlock()
	// A session that has ended may report a running transaction, but refuses a cluster time.
	return session.TransactionRunning() && session.AdvanceClusterTime(session.ClusterTime()) == nil
}

// Within runs fn in the caller's transaction. MongoDB has no savepoints: if fn fails after its first write, the transaction is aborted.
func (d *Driver) Within(ctx context.Context, caller any, fn func(driver.Tx) error) error {
	return d.within(ctx, caller, func(t *tx) error {
		if err := t.start(ctx, driver.Begin{}); err != nil {
			return err
		}
		return fn(t)
	})
}

func (d *Driver) within(ctx context.Context, caller any, fn func(*tx) error) error {
	session, ok := caller.(*mongo.Session)
	if !ok {
		return fmt.Errorf("%w: the context carries a %T: use the store's WithTx", outmill.ErrInvalidTx, caller)
	}
	unlock, err := d.inUse.Lock(ctx, session)
	if err != nil {
		return err
	}
	defer unlock()
	if !session.TransactionRunning() {
		return storekit.TxGone(nil)
	}
	t := &tx{d: d, session: session, callers: true, learned: newLearned()}
	defer t.unlock()
	if err := fn(t); err != nil {
		if mongoerr.HasCode(err, mongoerr.CodeNoSuchTransaction) {
			return storekit.TxGone(err)
		}
		// After a conflict the server has aborted it.
		if t.wrote && !t.aborted && !conflicts(err) {
			own, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortWithin)
			defer cancel()
			_ = session.AbortTransaction(own)
		}
		return err
	}
	if open, ok := ctx.Value(openTx{}).(*storekit.AfterCommit); ok {
		*open = append(*open, t.AfterCommit...)
	}
	return nil
}

// openTx is the key of what runs after the commit of a Transact.
type openTx struct{}

// callerError is the error of a function of the caller, which is returned as it is.
type callerError struct{ err error }

func (e *callerError) Error() string { return e.err.Error() }
func (e *callerError) Unwrap() error { return e.err }

// Transact runs fn in a transaction, whose session is in the context of fn. See driver.DB.
func (d *Driver) Transact(ctx context.Context, fn func(ctx context.Context) error) error {
	worthAnother := func(err error) bool { return passes(err) || errors.Is(err, driver.ErrBusy) }
	err := again(ctx, worthAnother, func() error { return d.transactOnce(ctx, fn) })
	var own *callerError
	if errors.As(err, &own) {
		return own.err
	}
	return d.Explain(ctx, "transaction", err)
}

func (d *Driver) transactOnce(ctx context.Context, fn func(ctx context.Context) error) (err error) {
	session, err := d.moment()
	if err != nil {
		return err
	}
	defer func() { d.endSession(ctx, session, err) }()
	var onCommit storekit.AfterCommit
	if err = fn(context.WithValue(d.WithTx(ctx, session), openTx{}, &onCommit)); err != nil {
		return &callerError{err}
	}
	if !session.TransactionRunning() {
		return storekit.TxGone(nil)
	}
	if err = ctx.Err(); err != nil {
		return err
	}
	if err = commit(ctx, session); err != nil {
		return err
	}
	onCommit.Committed()
	return nil
}
