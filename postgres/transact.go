package postgres

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// Transact runs fn in a READ COMMITTED transaction, and again if it fails for a temporary
// reason. The transaction is a pgx.Tx of the pool or, if Config.DB is set, a *sql.Tx of it. The
// BEGIN of a pgx.Tx is sent with the first statement of the store, such as an inbox's note, or
// before the first one of fn. See roles.Transactor.
func (s *Store) Transact(ctx context.Context, fn func(ctx context.Context) error) error {
	explain := func(err error) error { return s.explain(ctx, "transaction", err) }
	return storekit.TransactOr(ctx, s, fn, explain, s.proveTx, func() error {
		fn, in := storekit.Forgetful(ctx, fn), s.inOpenTx
		if s.config.DB != nil {
			in = s.inSQLTx
		}
		run := func() error { return s.conns.Repeat(ctx, worthAnother, func() error { return in(ctx, fn) }) }
		if s.config.DB != nil && s.conns.Pool() != s.config.DB {
			// The handlers' connections are those of another pool.
			return run()
		}
		return s.conns.Admit(ctx, s.logger, run)
	})
}

// worthAnother reports whether fn may succeed if it runs again. A busy note is not repeated
// here, because its caller chooses a better time, nor what may have been committed.
func worthAnother(err error) bool {
	return passes(err) && !errors.Is(err, roles.ErrNoteBusy) && !errors.Is(err, storekit.ErrCommitInDoubt)
}

// MayBeCommitted reports whether a COMMIT with this error may have taken effect. See
// storekit.CommitJudge.
func (*Store) MayBeCommitted(_ context.Context, err error) bool { return mayBeCommitted(err) }

// inSQLTx is InTx on the *sql.DB of the user.
func (s *Store) inSQLTx(ctx context.Context, fn func(ctx context.Context) error) (err error) {
	const operation = "transaction"
	if err := s.ready(ctx); err != nil {
		return s.explain(ctx, operation, err)
	}
	conn, tx, end, err := s.conns.BeginSQL(ctx, s.config.DB)
	if err != nil {
		return s.explain(ctx, operation, err)
	}
	defer func() { end(err) }()
	if err := s.limitIdle(ctx, tx); err != nil {
		return s.explain(ctx, operation, err)
	}
	var topics storekit.TopicSet
	if err := fn(storekit.GatherTopics(s.WithTx(ctx, tx), s, &topics)); err != nil {
		return err
	}
	if err := commitSQL(ctx, conn, tx); err != nil {
		return s.explain(ctx, operation, err)
	}
	s.notifier.Notify(topics.List()...)
	return nil
}

func commitSQL(ctx context.Context, conn *sql.Conn, tx *sql.Tx) error {
	if err := provenOnPool(ctx, conn, tx); err != nil {
		return err
	}
	// Commit does nothing then.
	if err := ctx.Err(); err != nil {
		return err
	}
	return committed(tx.Commit())
}

// TxLimit is 0, because PostgreSQL has no limit unless transaction_timeout sets one. See
// roles.Transactor.
func (s *Store) TxLimit() time.Duration { return 0 }

// HasTransactions is true. See roles.Transactor.
func (*Store) HasTransactions() bool { return true }

// Tx returns the transaction that ctx carries for this store, such as that of Transact. It
// reports false if there is none, or if it is not a pgx.Tx: then SQLTx or TxOf has it, such as
// the *sql.Tx of gorm, bun, sqlx, sqlc or ent. The first such call logs a line.
func (s *Store) Tx(ctx context.Context) (pgx.Tx, bool) {
	found, err := s.TxOf(ctx)
	return storekit.TxAs[pgx.Tx](s.logger, "Tx", found, err)
}

// SQLTx is Tx for a *sql.Tx, such as that of Transact if Config.DB is set, or that of a library
// over database/sql.
func (s *Store) SQLTx(ctx context.Context) (*sql.Tx, bool) {
	found, err := s.TxOf(ctx)
	return storekit.TxAs[*sql.Tx](s.logger, "SQLTx", found, err)
}
