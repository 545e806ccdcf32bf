package main

import (
	"context"
	"database/sql"
)

// DBTX is as sqlc generates it: a pool or a transaction.
type DBTX interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
	PrepareContext(context.Context, string) (*sql.Stmt, error)
	QueryContext(context.Context, string, ...any) (*sql.Rows, error)
	QueryRowContext(context.Context, string, ...any) *sql.Row
}

// Queries is as sqlc generates it.
type Queries struct{ db DBTX }

// New is as sqlc generates it.
func New(db DBTX) *Queries { return &Queries{db: db} }

const insertSale = `INSERT INTO sales (item) VALUES ($1)`

// InsertSale is as sqlc generates it.
func (q *Queries) InsertSale(ctx context.Context, item string) error {
	_, err := q.db.ExecContext(ctx, insertSale, item)
	return err
}
