package mongo

import (
	"context"
	"fmt"
	"time"

	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// WithTx returns a context that carries the session's transaction. An Append with this context is
// part of the transaction, which the caller begins and ends. A context from the driver, such as
// the one that session.WithTransaction passes to its callback, carries the transaction too; use
// WithTx for contexts that also carry transactions of other stores.
//
// A nil session, a session of another client, and a session without a transaction are refused
// with outmill.ErrInvalidTx by the calls that use the context.
//
// In MongoDB, an error of the server ends the transaction. A record that Append refuses
// (ErrInvalidRecord, …) does not end it.
func (s *Store) WithTx(ctx context.Context, session *driver.Session) context.Context {
	return storekit.ContextWithTx(driver.NewSessionContext(ctx, session), s, session)
}

// TxOf returns the session that ctx carries with a transaction of this store's client. A session
// without a transaction does not count. See outmill.Writer.
func (s *Store) TxOf(ctx context.Context) (any, error) {
	session, err := s.sessionOf(ctx)
	if session == nil {
		return nil, err
	}
	return session, err
}

func (s *Store) sessionOf(ctx context.Context) (*driver.Session, error) {
	carried, err := storekit.TxFromContext(ctx, s)
	if carried != nil {
		return s.checkSession(carried.(*driver.Session))
	}
	session := driver.SessionFromContext(ctx)
	switch {
	case session == nil || !s.running(session):
		return nil, err
	case session.Client() != s.client:
		return nil, outmill.ErrForeignTx
	}
	return s.checkSession(session)
}

func (s *Store) checkSession(session *driver.Session) (*driver.Session, error) {
	switch {
	case session == nil:
		return nil, fmt.Errorf("%w: the session is nil", outmill.ErrInvalidTx)
	case session.Client() != s.client:
		return nil, fmt.Errorf("%w: the session is that of another client than the store's", outmill.ErrInvalidTx)
	case !s.running(session):
		return nil, fmt.Errorf("%w: the session has no transaction: call its StartTransaction, or use its WithTransaction", outmill.ErrInvalidTx)
	case s.config.WithoutTransactions:
		return nil, fmt.Errorf("%w: the store was made with Config.WithoutTransactions", outmill.ErrInvalidTx)
	}
	return session, nil
}

// running reports whether the session has a transaction. Sessions of the driver are not safe for
// concurrent use, so running waits for an Append that uses the session.
func (s *Store) running(session *driver.Session) bool {
	unlock, err := s.inUse.Lock(context.Background(), session)
	if err != nil {
		return false
	}
	defer unlock()
	// A session that has ended may report a running transaction, but refuses a cluster time.
	return session.TransactionRunning() && session.AdvanceClusterTime(session.ClusterTime()) == nil
}

// InTx runs fn in a transaction of the client. It commits if fn returns nil, and aborts if fn
// returns an error. The context that fn gets carries the transaction for the driver, for
// publishers and for Append. As the driver's WithTransaction does, InTx calls fn again for up to
// two minutes if the transaction failed for a reason that passes, and repeats only the commit if
// the result of the commit is unknown. It does neither after ctx has ended: a commit that is
// running then gets 2 s more, after which its result is unknown. If fn itself ends the
// transaction, InTx returns outmill.ErrInvalidTx. The transaction reads a snapshot and commits with write concern
// majority, whatever the client's settings are.
func (s *Store) InTx(ctx context.Context, fn func(ctx context.Context) error) error {
	if fn == nil {
		return s.explain(ctx, "transaction", storekit.InvalidConfig("InTx: fn is nil"))
	}
	if err := s.ready(alone(ctx)); err != nil {
		return s.explain(ctx, "transaction", err)
	}
	var topics storekit.TopicSet
	fn = storekit.Forgetful(ctx, fn)
	err := againUntil(ctx, time.Now().Add(repeatTxFor), isTransient, func() error {
		return s.once(ctx, func(ctx context.Context) error {
			return fn(storekit.GatherTopics(s.WithTx(ctx, driver.SessionFromContext(ctx)), s, &topics))
		})
	})
	if err == nil {
		s.notifier.Notify(topics.List()...)
	}
	return err
}
