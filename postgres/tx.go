package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// Handle is a transaction of database/sql in which the store can run statements: a *sql.Tx of
// any PostgreSQL driver, or another type with these methods, such as the ContextExecutor of
// watermill-sql v3.
type Handle = sqlkit.Handle

// WithTx returns a context that carries tx: with it, Append takes part in that transaction. The
// caller begins and ends the transaction.
//
// tx is a pgx.Tx (also a nested one), a *sql.Tx, a struct (or a pointer to one) that embeds one
// of them or has it in an exported field, such as bun.Tx, *sqlx.Tx, gorm's
// tx.Statement.ConnPool, ent's dialect.Tx and the Tx of watermill-sql v4, or another [Handle].
// The store sends its statements to the transaction itself and not to its wrapper, and treats a
// transaction as the same one in every wrapper. If a wrapper should see the statements, it must
// keep its transaction in an unexported field, and pass statements on unchanged; two such
// wrappers around one transaction count as two transactions.
//
// Calls that use the context refuse a nil, a pool, a bare connection of pgx, and any other
// value with outmill.ErrInvalidTx. A *sql.Conn counts as a connection on which the caller has
// sent BEGIN.
//
// As always in PostgreSQL, an error of a statement leaves the transaction unusable until it is
// rolled back, at least to a savepoint: calls with the context return outmill.ErrInvalidTx. So they
// do, and write nothing, if the session has ended, or if a COMMIT or ROLLBACK was sent as a
// statement. To find that, a call in a transaction of database/sql takes one more round trip if the
// driver is not pgx's. If Append refuses its input (ErrInvalidRecord, …), it
// sends no statement.
func (s *Store) WithTx(ctx context.Context, tx any) context.Context {
	return storekit.ContextWithTx(ctx, s, resolve(tx))
}

// carried is the value that WithTx puts in a context, whether or not it can be used.
type carried struct {
	tx  any
	err error
}

func resolve(tx any) carried {
	if own, ok := tx.(*openTx); ok {
		return carried{own, nil}
	}
	found, err := sqlkit.ResolveTx(tx, sqlkit.Driver{IsTx: isPgxTx, NoTx: isNoTx})
	return carried{found, err}
}

// TxOf returns the transaction that ctx carries for this store. See
// outmill.Writer.
func (s *Store) TxOf(ctx context.Context) (any, error) {
	found, err := storekit.TxFromContext(ctx, s)
	if tx, ok := found.(carried); ok {
		return tx.tx, tx.err
	}
	if s.config.TxFromContext != nil {
		if adopted, ok := s.config.TxFromContext(ctx); ok {
			tx := resolve(adopted)
			return tx.tx, tx.err
		}
	}
	return nil, err
}

func isPgxTx(tx any) bool {
	_, ok := tx.(pgx.Tx)
	return ok
}

func isNoTx(tx any) string {
	switch tx.(type) {
	case *pgxpool.Pool:
		return fmt.Sprintf("a %T is a pool, not a transaction: pass what its Begin returns", tx)
	case *pgx.Conn, *pgxpool.Conn:
		return fmt.Sprintf("a %T is a connection, not a transaction: pass what its Begin returns", tx)
	}
	return ""
}

// InTx runs fn in a READ COMMITTED transaction of the pool. It commits if fn returns nil, and
// rolls back if fn returns an error or panics (the panic continues). The context that fn gets
// carries the transaction, so publishers and Append take part in it.
func (s *Store) InTx(ctx context.Context, fn func(ctx context.Context, tx pgx.Tx) error) error {
	if fn == nil {
		return s.explain(ctx, "transaction", storekit.InvalidConfig("InTx: fn is nil"))
	}
	if err := s.ready(ctx); err != nil {
		return s.explain(ctx, "transaction", err)
	}
	var own error
	var topics storekit.TopicSet
	err := s.inPoolTx(ctx, func(tx pgx.Tx) error {
		if own = fn(storekit.GatherTopics(s.WithTx(ctx, tx), s, &topics), tx); own != nil {
			return own
		}
		// PostgreSQL commits without an error if there is no transaction.
		return provenOn(tx.Conn())
	})
	if own != nil && errors.Is(err, own) {
		return own
	}
	if err == nil {
		s.notifier.Notify(topics.List()...)
	}
	return s.explain(ctx, "transaction", err)
}

// within runs fn in the caller's transaction.
func (s *Store) within(ctx context.Context, operation string, tx any, fn func(ctx context.Context, r runner) error) error {
	if err := s.usable(ctx); err != nil {
		return s.explain(ctx, operation, err)
	}
	unlock, err := s.inUse.Lock(ctx, lockOwner(tx))
	if err != nil {
		return s.explain(ctx, operation, err)
	}
	defer unlock()
	r, err := s.callers(ctx, tx)
	if err == nil {
		err = fn(ctx, r)
	}
	return s.explain(ctx, operation, err)
}

// lockOwner returns the connection if it is known, since nested transactions share it.
func lockOwner(tx any) any {
	if own, ok := tx.(*openTx); ok {
		return own.conn
	}
	if tx, ok := tx.(pgx.Tx); ok {
		if conn := tx.Conn(); conn != nil {
			return conn
		}
	}
	return tx
}

// callers returns what runs steps in a caller's transaction, and an error if that has ended.
func (s *Store) callers(ctx context.Context, tx any) (runner, error) {
	switch tx := tx.(type) {
	case *openTx:
		return tx, tx.proven(ctx)
	case pgx.Tx:
		return pgxRunner{s, tx}, provenPgx(ctx, tx)
	}
	// Its first statement proves it.
	return &sqlRunner{s: s, handle: tx.(Handle)}, nil
}

// pgxRunner runs steps in a caller's pgx.Tx.
type pgxRunner struct {
	s  *Store
	tx pgx.Tx
}

func (r pgxRunner) run(ctx context.Context, steps ...step) error {
	return withSession(ctx, r.tx.Conn(), r.send(ctx, steps))
}

func (r pgxRunner) send(ctx context.Context, steps []step) error {
	if len(steps) == 1 {
		// pgx sends a batch in two packets, and a query in one.
		rows, err := r.tx.Query(ctx, r.s.sql.text(steps[0].template), steps[0].args...)
		if err != nil {
			return err
		}
		return steps[0].read(rows)
	}
	batch := &pgx.Batch{}
	for _, s := range steps {
		batch.Queue(r.s.sql.text(s.template), s.args...)
	}
	results := r.tx.SendBatch(ctx, batch)
	return closed(results, readSteps(results, steps))
}

func (r pgxRunner) copier() copier { return r.tx }

// sqlRunner runs steps in a caller's transaction of database/sql, one after
// the other.
type sqlRunner struct {
	s      *Store
	handle Handle
	// proven says that the driver is not pgx, and that a round trip has proved the transaction.
	proven bool
}

func (r *sqlRunner) run(ctx context.Context, steps ...step) error {
	for _, s := range steps {
		if err := r.runOne(ctx, s); err != nil {
			return withSession(ctx, nil, err)
		}
	}
	return nil
}

func (r *sqlRunner) copier() copier { return nil }

func (r *sqlRunner) runOne(ctx context.Context, s step) error {
	args := make([]any, 1, 1+len(s.args))
	args[0] = proof{}
	for _, arg := range s.args {
		args = append(args, literal(arg))
	}
	if !r.proven {
		err := r.send(ctx, s, args)
		if !errors.Is(err, errNotPgx) {
			return err
		}
		if err := provenSQL(ctx, r.handle); err != nil {
			return err
		}
		r.proven = true
	}
	return r.send(ctx, s, args[1:])
}

func (r *sqlRunner) send(ctx context.Context, s step, args []any) (err error) {
	text := r.s.sql.text(s.template)
	if s.row == nil {
		result, err := r.handle.ExecContext(ctx, text, args...)
		if err != nil || s.count == nil {
			return err
		}
		n, err := result.RowsAffected()
		*s.count = int(n)
		return err
	}
	rows, err := r.handle.QueryContext(ctx, text, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := s.row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
