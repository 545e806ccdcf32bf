package mongo

import (
	"context"
	"time"

	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill/storekit"
)

// txLimit is transactionLifetimeLimitSeconds of a server that is not set otherwise.
const txLimit = time.Minute

// Transact runs fn in a transaction of the client, and again if it fails for a reason
// that passes. Where the answer to the commit is lost, only the commit is repeated. See
// storekit.Transactor.
func (s *Store) Transact(ctx context.Context, fn func(ctx context.Context) error) error {
	explain := func(err error) error { return s.explain(ctx, "transaction", err) }
	return storekit.TransactOr(ctx, s, fn, explain, func() error {
		if s.config.WithoutTransactions {
			return explain(storekit.ErrNoTransactions)
		}
		return s.InTx(ctx, fn)
	})
}

// TxLimit is 60 s: a server ends transactions that take longer. See storekit.Transactor.
func (s *Store) TxLimit() time.Duration { return txLimit }

// Session returns the session whose transaction ctx carries for this store, such as the
// one of Transact, and reports whether there is one. The context itself carries the
// session for the driver, so most handlers pass that on and need no session.
func (s *Store) Session(ctx context.Context) (*driver.Session, bool) {
	session, err := s.sessionOf(ctx)
	return session, session != nil && err == nil
}
