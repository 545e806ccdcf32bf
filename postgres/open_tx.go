package postgres

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outmill/outmill/storekit"
)

// openTx is a transaction of Transact. Its BEGIN is sent with the store's first statement, or
// when the user asks for the transaction. Its COMMIT is sent with the last statement if the
// caller marks that one (storekit.Last), and alone otherwise.
type openTx struct {
	// Tx is nil until the transaction has begun. After its end it refuses everything.
	pgx.Tx
	s      *Store
	pooled *pgxpool.Conn
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
func (s *Store) inOpenTx(ctx context.Context, fn func(ctx context.Context) error) error {
	const operation = "transaction"
	err := s.ready(ctx)
	if err != nil {
		return s.explain(ctx, operation, err)
	}
	pooled, err := s.pool.Acquire(ctx)
	if err != nil {
		return s.explain(ctx, operation, err)
	}
	t := &openTx{s: s, pooled: pooled, conn: pooled.Conn(), ctx: ctx}
	defer t.end()
	var topics storekit.TopicSet
	if err := fn(storekit.GatherTopics(s.WithTx(ctx, t), s, &topics)); err != nil {
		return err
	}
	if err := t.commit(ctx); err != nil {
		return s.explain(ctx, operation, err)
	}
	s.notifier.Notify(topics.List()...)
	return nil
}

// begin sends the BEGIN if no statement has done so. If it fails, the transaction refuses
// everything.
func (t *openTx) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.Tx != nil {
		return
	}
	if t.Tx, t.failed = t.conn.BeginTx(t.ctx, ofOpenTx); t.failed != nil {
		t.Tx = closedTx(t.failed)
	}
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
	if t.Tx != nil {
		return pgxRunner{t.s, t.Tx}.run(ctx, steps...)
	}
	return t.send(ctx, steps, false)
}

// copier needs no BEGIN, because callers have sent a step before.
func (t *openTx) copier() copier { return t }

// finish sends the steps and commits.
func (t *openTx) finish(ctx context.Context, steps ...step) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.send(ctx, steps, true); err != nil {
		return err
	}
	t.Tx, t.committed = closedTx(pgx.ErrTxClosed), true
	return nil
}

func (t *openTx) send(ctx context.Context, steps []step, last bool) error {
	batch := &pgx.Batch{}
	before := 0
	sender := interface {
		SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	}(t.Tx)
	if t.Tx == nil {
		batch.BeginTx(ofOpenTx)
		sender, before = t.conn, 1
	}
	for _, s := range steps {
		batch.Queue(t.s.sql.text(s.template), s.args...)
	}
	if last {
		batch.Queue(sqlCommit)
	}
	results := sender.SendBatch(ctx, batch)
	if begun := results.Tx(); begun != nil {
		t.Tx = begun
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
	case t.Tx == nil:
		return nil
	}
	return t.Commit(ctx)
}

// end returns the connection to the pool, after a rollback if the transaction is still open.
func (t *openTx) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer t.pooled.Release()
	if t.Tx != nil && t.conn.PgConn().TxStatus() != 'I' {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), rollbackWithin)
		defer cancel()
		_ = t.Rollback(ctx)
	}
	t.Tx = closedTx(pgx.ErrTxClosed)
}

// last returns the function that sends the last steps of a call, and whether it also commits.
func (s *Store) last(ctx context.Context, r runner) (last send, commits bool) {
	if own, ok := r.(*openTx); ok && storekit.IsLast(ctx, s) {
		return own.finish, true
	}
	return r.run, false
}
