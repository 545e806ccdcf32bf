package mongo

import (
	"context"

	mongodriver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill/engine"
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
func (s *Store) WithTx(ctx context.Context, session *mongodriver.Session) context.Context {
	return s.driver.WithTx(ctx, session)
}

// InTx runs fn in a transaction of the client. It commits if fn returns nil, and aborts if fn
// returns an error or panics (the panic continues). The context that fn gets carries the transaction for
// MongoDB's driver, for publishers and for Append. As that driver's WithTransaction does, InTx calls fn again
// if the transaction failed for a reason that passes, and repeats only the commit if
// the result of the commit is unknown. It does neither after ctx has ended: a commit that is
// running then gets 2 s more, after which its result is unknown. If fn itself ends the
// transaction, InTx returns outmill.ErrInvalidTx. The transaction reads a snapshot and commits with write concern
// majority, whatever the client's settings are.
func (s *Store) InTx(ctx context.Context, fn func(ctx context.Context) error) error {
	const operation = "transaction"
	if fn == nil {
		return s.driver.Explain(ctx, operation, storekit.InvalidConfig("InTx: fn is nil"))
	}
	if err := engine.Ready(ctx, s.Engine, operation); err != nil {
		return err
	}
	return s.driver.Transact(ctx, storekit.Forgetful(ctx, fn))
}

// Session returns the session whose transaction ctx carries for this store, such as the session
// of Transact, and reports whether there is one. The driver finds the session in ctx, so most
// handlers pass ctx on and do not need the session.
func (s *Store) Session(ctx context.Context) (*mongodriver.Session, bool) {
	found, err := s.TxOf(ctx)
	session, is := found.(*mongodriver.Session)
	return session, is && err == nil
}
