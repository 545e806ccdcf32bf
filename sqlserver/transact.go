package sqlserver

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// sqlAbort makes any error end the transaction, so that no part of it can be committed.
const sqlAbort = "SET XACT_ABORT ON"

// Transact runs fn in a transaction of the pool, READ COMMITTED with XACT_ABORT, and repeats it
// if it fails for a reason that passes. See roles.Transactor.
func (s *Store) Transact(ctx context.Context, fn func(ctx context.Context) error) error {
	explain := func(err error) error { return s.explain(ctx, "transaction", err) }
	return storekit.TransactOr(ctx, s, fn, explain, s.proveTx, func() error {
		fn := storekit.Forgetful(ctx, fn)
		return s.admission.Run(ctx, s.handlers(), s.tellWaiting, func() error {
			return storekit.Repeat(ctx, worthAnother, func() error {
				return s.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
					if _, err := tx.ExecContext(ctx, sqlAbort); err != nil {
						return err
					}
					return fn(ctx)
				})
			})
		})
	})
}

// TxLimit is 0, because SQL Server has no limit. See roles.Transactor.
func (s *Store) TxLimit() time.Duration { return 0 }

// HasTransactions is true. See roles.Transactor.
func (*Store) HasTransactions() bool { return true }

// Tx returns the transaction that ctx carries for this store, such as the one of Transact. It
// reports false if there is none, or if it is not a *sql.Tx: then TxOf has it, and the first such
// call logs a line.
func (s *Store) Tx(ctx context.Context) (*sql.Tx, bool) {
	found, err := s.TxOf(ctx)
	return storekit.TxAs[*sql.Tx](s.logger, "Tx", found, err)
}

// worthAnother reports whether fn may succeed if it runs again. It is false for ErrNoteBusy: the
// caller decides when to try again.
func worthAnother(err error) bool { return passes(err) && !errors.Is(err, roles.ErrNoteBusy) }

// MayBeCommitted reports whether a COMMIT with this error may have taken effect. See
// storekit.CommitJudge.
func (*Store) MayBeCommitted(_ context.Context, err error) bool { return mayBeCommitted(err) }
