package main

import (
	"context"
	"database/sql"
)

// countingTx is a wrapper as applications have them for logs, metrics and
// traces. It keeps its transaction in a field that is not exported, so the outbox
// does not go past it. It leaves the statements as they are, and is passed by
// pointer, which tells one transaction from another.
type countingTx struct {
	tx         *sql.Tx
	statements int
}

func (tx *countingTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tx.statements++
	return tx.tx.ExecContext(ctx, query, args...)
}

func (tx *countingTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	tx.statements++
	return tx.tx.QueryContext(ctx, query, args...)
}
