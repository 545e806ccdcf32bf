package mongo

import (
	"context"
	"time"

	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/outmill/outmill/mongo/internal/mongoerr"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// txLimit is the default of the server's transactionLifetimeLimitSeconds.
const txLimit = time.Minute

// Transact runs fn in a transaction of the client, and repeats it if it fails for a reason that
// passes. If the result of the commit is unknown, it repeats only the commit. See
// roles.Transactor.
func (s *Store) Transact(ctx context.Context, fn func(ctx context.Context) error) error {
	explain := func(err error) error { return s.explain(ctx, "transaction", err) }
	return storekit.TransactOr(ctx, s, fn, explain, proven, func() error {
		if s.config.WithoutTransactions {
			return explain(roles.ErrNoTransactions)
		}
		return s.InTx(ctx, fn)
	})
}

var _ roles.Transactor = (*Store)(nil)

// HasTransactions is false with Config.WithoutTransactions. See roles.Transactor.
func (s *Store) HasTransactions() bool { return !s.config.WithoutTransactions }

// proven has nothing to do: TxOf refuses a session whose transaction was committed or aborted, and
// the server refuses every statement of a transaction that it has aborted itself, the user's too.
func proven(context.Context) error { return nil }

// MayBeCommitted reports whether a COMMIT with this error may have taken effect. See
// storekit.CommitJudge.
func (*Store) MayBeCommitted(_ context.Context, err error) bool { return mongoerr.MayBeCommitted(err) }

// TxLimit is 60 s: the server aborts transactions that take longer. See roles.Transactor.
func (s *Store) TxLimit() time.Duration { return txLimit }

// Session returns the session whose transaction ctx carries for this store, such as the session
// of Transact, and reports whether there is one. The driver finds the session in ctx, so most
// handlers pass ctx on and do not need the session.
func (s *Store) Session(ctx context.Context) (*driver.Session, bool) {
	session, err := s.sessionOf(ctx)
	return session, session != nil && err == nil
}
