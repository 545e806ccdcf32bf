package example

import (
	"context"
	"database/sql"
)

// InTx runs fn in a transaction. It commits if fn returns nil, and rolls back if fn returns an
// error.
func InTx(ctx context.Context, db *sql.DB, fn func(tx *sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	// After a commit this does nothing.
	defer func() { _ = tx.Rollback() }()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit()
}

// CreateSales is the table of a program without a library that makes tables.
const CreateSales = `CREATE TABLE sales (item VARCHAR(100) PRIMARY KEY)`

// InsertSale inserts into it. The parameters of PostgreSQL have numbers.
func (db *SQL) InsertSale() string {
	if db.Dialect == PostgreSQL {
		return `INSERT INTO sales (item) VALUES ($1)`
	}
	return `INSERT INTO sales (item) VALUES (?)`
}

// Sold returns the items in the table of sales.
func Sold(ctx context.Context, db *sql.DB) ([]string, error) {
	rows, err := db.QueryContext(ctx, `SELECT item FROM sales`)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var items []string
	for rows.Next() {
		var item string
		if err := rows.Scan(&item); err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, rows.Err()
}
