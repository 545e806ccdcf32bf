package main

import (
	"context"
	"database/sql"
)

// countingTx is a wrapper as applications have them for logs, metrics and
// traces. It leaves the statements as they are, so it can be passed itself; by
// pointer, which tells one transaction from another.
type countingTx struct {
	*sql.Tx
	statements int
}

func (tx *countingTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tx.statements++
	return tx.Tx.ExecContext(ctx, query, args...)
}

func (tx *countingTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	tx.statements++
	return tx.Tx.QueryContext(ctx, query, args...)
}

func (tx *countingTx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	tx.statements++
	return tx.Tx.QueryRowContext(ctx, query, args...)
}
