package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/outmill/outmill/storekit"
)

// Transact runs fn in a transaction that has the write lock from its beginning. See
// roles.Transactor.
func (s *Store) Transact(ctx context.Context, fn func(ctx context.Context) error) error {
	explain := func(err error) error { return s.explain(ctx, "transaction", err) }
	return storekit.TransactOr(ctx, s, fn, explain, s.proveTx, func() error {
		return s.InTx(ctx, func(ctx context.Context, _ *sql.Tx) error { return fn(ctx) })
	})
}

// MayBeCommitted reports whether a COMMIT with this error may have taken effect. See
// storekit.CommitJudge.
func (*Store) MayBeCommitted(_ context.Context, err error) bool { return mayBeCommitted(err) }

// TxLimit is 0, because SQLite has no limit. See roles.Transactor.
func (s *Store) TxLimit() time.Duration { return 0 }

// HasTransactions is true. See roles.Transactor.
func (*Store) HasTransactions() bool { return true }

// Tx returns the transaction that ctx carries for this store, such as that of Transact. It
// reports false if there is none, or if it is not a *sql.Tx: then TxOf has it, and the first such
// call logs a line.
func (s *Store) Tx(ctx context.Context) (*sql.Tx, bool) {
	found, err := s.TxOf(ctx)
	tx, ok := found.(*sql.Tx)
	if !ok {
		s.logger.OtherTx("Tx", found)
	}
	return tx, ok && err == nil
}
