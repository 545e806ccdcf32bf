//go:build unix

package chaos_test

import (
	"context"
	"database/sql"
	"errors"

	"github.com/outmill/outmill"
)

// sqlTables are the application's tables in a database that database/sql reaches. key is the name of the column of keys.
type sqlTables struct {
	db  *sql.DB
	key string
}

// begin runs fn in a transaction of database/sql, and commits if fn returns nil.
func (s sqlTables) begin(ctx context.Context, options *sql.TxOptions, fn func(tx *sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, options)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (s sqlTables) ledger(ctx context.Context) (map[string]entry, error) {
	ledger := map[string]entry{}
	err := s.each(ctx, "SELECT uuid, "+s.key+", n FROM ledger", func(scan func(...any) error) error {
		var uuid string
		var e entry
		err := scan(&uuid, &e.key, &e.n)
		ledger[uuid] = e
		return err
	})
	return ledger, err
}

func (s sqlTables) promised(ctx context.Context) (map[outmill.JoinID]promise, error) {
	promises := map[outmill.JoinID]promise{}
	err := s.each(ctx, "SELECT id, steps, wanted FROM started", func(scan func(...any) error) error {
		var id outmill.JoinID
		var p promise
		err := scan(&id, &p.steps, &p.wanted)
		promises[id] = p
		return err
	})
	return promises, err
}

func (s sqlTables) each(ctx context.Context, query string, row func(scan func(...any) error) error) error {
	rows, err := s.db.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}
