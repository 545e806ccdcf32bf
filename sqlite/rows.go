package sqlite

import (
	"context"
	"database/sql"
	"errors"
)

// list returns the values that scan reads from the rows of the query.
func list[T any](ctx context.Context, t *txn, scan func(*sql.Rows, *T) error, template string, args ...any) (found []T, err error) {
	rows, err := t.query(ctx, template, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var item T
		if err := scan(rows, &item); err != nil {
			return nil, err
		}
		found = append(found, item)
	}
	return found, rows.Err()
}

// column scans rows of a single column.
func column[T any](rows *sql.Rows, value *T) error { return rows.Scan(value) }

func (t *txn) seqs(ctx context.Context, template string, args ...any) ([]int64, error) {
	return list(ctx, t, column[int64], template, args...)
}

func (t *txn) texts(ctx context.Context, template string, args ...any) ([]string, error) {
	return list(ctx, t, column[string], template, args...)
}

// one reads the only row of the query, and reports whether there was one.
func (t *txn) one(ctx context.Context, into []any, template string, args ...any) (bool, error) {
	found, err := list(ctx, t, func(rows *sql.Rows, _ *struct{}) error { return rows.Scan(into...) }, template, args...)
	return len(found) > 0, err
}
