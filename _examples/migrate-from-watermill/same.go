package main

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"
)

// sameDatabase reports whether both connections lead to one database. It takes a lock through the
// first one and tries it through the second one, because two URLs of one database can differ in
// host, user and parameters.
func sameDatabase(ctx context.Context, source *sql.DB, store interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}) (bool, error) {
	key := rand.Int64()
	mine, err := source.BeginTx(ctx, nil)
	if err != nil {
		return false, fmt.Errorf("ask the source: %w", err)
	}
	defer func() { _ = mine.Rollback() }()
	if _, err := mine.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1)`, key); err != nil {
		return false, fmt.Errorf("ask the source: %w", err)
	}
	other, err := store.Begin(ctx)
	if err != nil {
		return false, fmt.Errorf("ask the store: %w", err)
	}
	defer func() { _ = other.Rollback(ctx) }()
	var free bool
	if err := other.QueryRow(ctx, `SELECT pg_try_advisory_xact_lock($1)`, key).Scan(&free); err != nil {
		return false, fmt.Errorf("ask the store: %w", err)
	}
	return !free, nil
}
