package driver

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/outmill/outmill/storekit"
)

// openTx is a transaction of Transact or InTx, and a pgx.Tx. Its BEGIN travels with the driver's first statements, or goes before the
// user's first one. Its COMMIT travels with the driver's last statements if the caller marks them, and goes alone otherwise.
type openTx struct {
	*ownTx
	// ctx is for a BEGIN that goes alone, and limit the idle limit of the transaction; "" is none.
	ctx   context.Context
	limit string
	// mu guards the others.
	mu sync.Mutex
	// tx is nil until the transaction has begun. After its end it refuses everything.
	tx pgx.Tx
	// failed is the error of a BEGIN that went alone.
	failed   error
	onCommit storekit.AfterCommit
}

var _ pgx.Tx = (*openTx)(nil)

// send sends steps, behind the BEGIN if that was not sent.
func (t *openTx) send(ctx context.Context, steps []step) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sendLocked(ctx, steps)
}

func (t *openTx) sendLocked(ctx context.Context, steps []step) error {
	if t.tx != nil {
		return onPgx{t.tx}.send(ctx, steps)
	}
	first := []step{{done: func(int) error {
		t.begun = true
		return nil
	}}}
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if t.limit != "" {
		limited := step{text: sqlIdle, args: []any{t.limit}}
		batch.Queue(limited.text, limited.args...)
		first = append(first, limited)
	}
	queue(batch, steps)
	results := t.conn.SendBatch(ctx, batch)
	err := readBatch(results, append(first, steps...))
	// What pgx refuses before it sends anything leaves the transaction as it was.
	if t.begun || t.conn.IsClosed() {
		t.tx = results.Tx()
	}
	return err
}

// sendLast sends the last steps with the COMMIT.
func (t *openTx) sendLast(ctx context.Context, steps []step) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	steps = append(steps, step{text: sqlCommit, done: func(int) error {
		t.over = true
		return nil
	}})
	if err := t.committing(func() error { return t.sendLocked(ctx, steps) }); err != nil {
		return err
	}
	t.tx = closedTx(pgx.ErrTxClosed)
	return nil
}

func (t *openTx) commit(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.over:
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
	return t.committing(func() error { return t.tx.Commit(ctx) })
}

// end returns the connection to the pool, after a rollback if the transaction is still open.
func (t *openTx) end(ctx context.Context, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tx = closedTx(pgx.ErrTxClosed)
	t.ownTx.end(ctx, err)
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

// users returns the transaction for a statement of the user, after the BEGIN. If that fails, the transaction refuses everything.
func (t *openTx) users() pgx.Tx {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tx == nil {
		if t.failed = t.sendLocked(t.ctx, nil); t.failed != nil {
			t.tx = closedTx(t.failed)
		}
	}
	return t.tx
}

// closedTx is a transaction that refuses everything.
func closedTx(why error) pgx.Tx {
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{})
	return pgx.FailedBatchResults(batch, why).Tx()
}

// The methods of pgx.Tx are the user's.

// Begin is that of pgx.Tx.
func (t *openTx) Begin(ctx context.Context) (pgx.Tx, error) { return t.users().Begin(ctx) }

// Commit is that of pgx.Tx. It makes Transact fail, which commits by itself.
func (t *openTx) Commit(ctx context.Context) error { return t.users().Commit(ctx) }

// Rollback is that of pgx.Tx. It makes Transact fail.
func (t *openTx) Rollback(ctx context.Context) error { return t.users().Rollback(ctx) }

// CopyFrom is that of pgx.Tx.
func (t *openTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error) {
	return t.users().CopyFrom(ctx, table, columns, source)
}

// SendBatch is that of pgx.Tx.
func (t *openTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return t.users().SendBatch(ctx, b)
}

// LargeObjects is that of pgx.Tx.
func (t *openTx) LargeObjects() pgx.LargeObjects { return t.users().LargeObjects() }

// Prepare is that of pgx.Tx.
func (t *openTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	return t.users().Prepare(ctx, name, sql)
}

// Exec is that of pgx.Tx.
func (t *openTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return t.users().Exec(ctx, sql, args...)
}

// Query is that of pgx.Tx.
func (t *openTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return t.users().Query(ctx, sql, args...)
}

// QueryRow is that of pgx.Tx.
func (t *openTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return t.users().QueryRow(ctx, sql, args...)
}

// Conn is that of pgx.Tx.
func (t *openTx) Conn() *pgx.Conn { return t.users().Conn() }
