package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

var _ pgx.Tx = (*openTx)(nil)

// The methods of pgx.Tx are for the user, who may call one before the store has sent a statement.

// Begin is that of pgx.Tx.
func (t *openTx) Begin(ctx context.Context) (pgx.Tx, error) { return t.begun().Begin(ctx) }

// Commit is that of pgx.Tx. It makes Transact fail, which commits by itself.
func (t *openTx) Commit(ctx context.Context) error { return t.begun().Commit(ctx) }

// Rollback is that of pgx.Tx. It makes Transact fail.
func (t *openTx) Rollback(ctx context.Context) error { return t.begun().Rollback(ctx) }

// CopyFrom is that of pgx.Tx.
func (t *openTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error) {
	return t.begun().CopyFrom(ctx, table, columns, source)
}

// SendBatch is that of pgx.Tx.
func (t *openTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return t.begun().SendBatch(ctx, b)
}

// LargeObjects is that of pgx.Tx.
func (t *openTx) LargeObjects() pgx.LargeObjects { return t.begun().LargeObjects() }

// Prepare is that of pgx.Tx.
func (t *openTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	return t.begun().Prepare(ctx, name, sql)
}

// Exec is that of pgx.Tx.
func (t *openTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return t.begun().Exec(ctx, sql, args...)
}

// Query is that of pgx.Tx.
func (t *openTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return t.begun().Query(ctx, sql, args...)
}

// QueryRow is that of pgx.Tx.
func (t *openTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return t.begun().QueryRow(ctx, sql, args...)
}

// Conn is that of pgx.Tx.
func (t *openTx) Conn() *pgx.Conn { return t.begun().Conn() }
