package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// bunTx does what bun.Tx does: it embeds *sql.Tx, and its own methods write the
// arguments into the statement, in place of question marks.
type bunTx struct{ *sql.Tx }

func (tx bunTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return tx.Tx.ExecContext(ctx, format(query, args))
}

func (tx bunTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return tx.Tx.QueryContext(ctx, format(query, args))
}

func (tx bunTx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return tx.Tx.QueryRowContext(ctx, format(query, args))
}

func format(query string, args []any) string {
	for _, arg := range args {
		quoted := "'" + strings.ReplaceAll(fmt.Sprint(arg), "'", "''") + "'"
		query = strings.Replace(query, "?", quoted, 1)
	}
	return query
}
