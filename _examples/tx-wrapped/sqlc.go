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

// sellBySQLC passes on what sqlc's Queries are made of.
func (s *shop) sellBySQLC(ctx context.Context, item string, ending error) error {
	return s.inTx(ctx, func(tx *sql.Tx) error {
		var db DBTX = tx
		if err := New(db).InsertSale(ctx, item); err != nil {
			return err
		}
		if err := s.tell(s.store.WithTx(ctx, db), item); err != nil {
			return err
		}
		return ending
	})
}
