package postgres

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill/postgres/internal/conns"
	"github.com/outmill/outmill/storekit"
)

// openTx is a transaction of Transact, and a pgx.Tx. Its BEGIN is sent with the store's first
// statement, or before the user's first one. Its COMMIT is sent with the last statement if the
// caller marks that one (storekit.Last), and alone otherwise.
type openTx struct {
	// tx is nil until the transaction has begun. After its end it refuses everything.
	tx     pgx.Tx
	s      *Store
	pooled *conns.Lent
	conn   *pgx.Conn
	// ctx is for a BEGIN that is sent alone.
	ctx       context.Context
	committed bool
	// failed is the error of that BEGIN.
	failed error
	// mu guards the beginning.
	mu sync.Mutex
}

var ofOpenTx = pgx.TxOptions{IsoLevel: pgx.ReadCommitted}

// inOpenTx runs fn in a transaction and commits it.
func (s *Store) inOpenTx(ctx context.Context, fn func(ctx context.Context) error) (err error) {
	const operation = "transaction"
	if err := s.ready(ctx); err != nil {
		return s.explain(ctx, operation, err)
	}
	pooled, err := s.conns.Acquire(ctx)
	if err != nil {
		return s.explain(ctx, operation, err)
	}
	t := &openTx{s: s, pooled: pooled, conn: pooled.Conn, ctx: ctx}
	defer func() { t.end(err) }()
	var topics storekit.TopicSet
	if err = fn(storekit.GatherTopics(s.WithTx(ctx, t), s, &topics)); err != nil {
		return err
	}
	if err = t.commit(ctx); err != nil {
		return s.explain(ctx, operation, err)
	}
	s.notifier.Notify(topics.List()...)
	return nil
}

// isFresh reports whether no statement has been sent yet.
func (t *openTx) isFresh() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tx == nil
}

// begun returns the transaction, and sends the BEGIN if no statement has done so. If that fails,
// the transaction refuses everything.
func (t *openTx) begun() pgx.Tx {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tx == nil {
		if t.tx, t.failed = t.conn.BeginTx(t.ctx, t.s.beginAlone(t.ctx)); t.failed != nil {
			t.tx = closedTx(t.failed)
		}
	}
	return t.tx
}

// proven returns an error if the transaction has ended.
func (t *openTx) proven(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tx == nil {
		return nil
	}
	return provenPgx(ctx, t.tx)
}

// closedTx is a transaction that refuses everything.
func closedTx(why error) pgx.Tx {
	batch := &pgx.Batch{}
	batch.BeginTx(ofOpenTx)
	return pgx.FailedBatchResults(batch, why).Tx()
}

func (t *openTx) run(ctx context.Context, steps ...step) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tx != nil {
		return pgxRunner{t.s, t.tx}.run(ctx, steps...)
	}
	return t.send(ctx, steps, false)
}

// copier needs no BEGIN, because callers have sent a step before.
func (t *openTx) copier() copier { return t }

// finish sends the steps and commits.
func (t *openTx) finish(ctx context.Context, steps ...step) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := committed(t.send(ctx, steps, true)); err != nil {
		return err
	}
	t.tx, t.committed = closedTx(pgx.ErrTxClosed), true
	return nil
}

func (t *openTx) send(ctx context.Context, steps []step, last bool) error {
	batch := &pgx.Batch{}
	before := 0
	sender := interface {
		SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	}(t.tx)
	if t.tx == nil {
		batch.BeginTx(ofOpenTx)
		sender, before = t.conn, 1
		if len(steps) == 0 || !steps[0].idles {
			for _, s := range t.s.idleSteps(ctx) {
				batch.Queue(s.template, s.args...)
				before++
			}
		}
	}
	for _, s := range steps {
		batch.Queue(t.s.sql.text(s.template), s.args...)
	}
	if last {
		batch.Queue(sqlCommit)
	}
	results := sender.SendBatch(ctx, batch)
	if begun := results.Tx(); begun != nil {
		t.tx = begun
	}
	return closed(results, read(results, before, steps, last))
}

func (t *openTx) commit(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.committed:
		return nil
	case t.failed != nil:
		return t.failed
	case ctx.Err() != nil:
		return ctx.Err()
	case t.tx == nil:
		return nil
	}
	// PostgreSQL commits without an error if there is no transaction.
	if err := provenPgx(ctx, t.tx); err != nil {
		return err
	}
	return committed(t.tx.Commit(ctx))
}

// end returns the connection to the pool, after a rollback if the transaction is still open. why is
// the error of the transaction.
func (t *openTx) end(why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.s.conns.GiveBack(t.pooled, why)
	if t.tx != nil && !conns.IsReadOnly(why) && t.conn.PgConn().TxStatus() != idle {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), rollbackWithin)
		defer cancel()
		_ = t.tx.Rollback(ctx)
	}
	t.tx = closedTx(pgx.ErrTxClosed)
}

// last returns the function that sends the last steps of a call, and whether it also commits.
func (s *Store) last(ctx context.Context, r runner) (last send, commits bool) {
	if own, ok := r.(*openTx); ok && storekit.IsLast(ctx, s) {
		return own.finish, true
	}
	return r.run, false
}
