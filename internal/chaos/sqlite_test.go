//go:build unix

package chaos_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/sqlite"
)

// sqliteFile is a file that all processes open. There is no server, and there are no connections
// to cut.
type sqliteFile struct{ path string }

func serveSQLite(t *testing.T) server {
	t.Helper()
	return sqliteFile{filepath.Join(t.TempDir(), "chaos.db")}
}

func (sqliteFile) address() string               { return "" }
func (f sqliteFile) url(string) string           { return f.path }
func (sqliteFile) restart(context.Context) error { return errors.New("SQLite has no server") }
func (sqliteFile) crash(context.Context) error   { return errors.New("SQLite has no server") }

type sqliteDatabase struct {
	store *sqlite.Store
	sqlTables
}

func connectSQLite(ctx context.Context, path string, logger watermill.LoggerAdapter) (database, error) {
	store, err := sqlite.Open(ctx, path, sqlite.Config{}, logger)
	if err != nil {
		return nil, err
	}
	return sqliteDatabase{store, sqlTables{store.DB(), "key"}}, nil
}

func (d sqliteDatabase) close() error { return d.store.Close() }

func (d sqliteDatabase) outbox() outbox { return d.store }

func (d sqliteDatabase) prepare(ctx context.Context) error {
	_, err := d.store.DB().ExecContext(ctx, `
		CREATE TABLE accounts (key TEXT PRIMARY KEY, n INTEGER NOT NULL);
		CREATE TABLE ledger (uuid TEXT PRIMARY KEY, key TEXT NOT NULL, n INTEGER NOT NULL);
		CREATE TABLE started (id TEXT PRIMARY KEY, steps INTEGER NOT NULL, wanted TEXT NOT NULL)`)
	for i := range keyCount {
		_, inserted := d.store.DB().ExecContext(ctx, "INSERT INTO accounts (key, n) VALUES (?, 0)", keyName(i))
		err = errors.Join(err, inserted)
	}
	return err
}

func (d sqliteDatabase) transact(ctx context.Context, dice *rand.Rand, fn func(context.Context, session) error) error {
	if dice.IntN(3) > 0 {
		return d.store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error { return fn(ctx, sqliteSession{d.store, tx}) })
	}
	return d.begin(ctx, nil, func(tx *sql.Tx) error { return fn(ctx, sqliteSession{d.store, tx}) })
}

// kindOf expects timeouts and lock errors, because a process that is stopped in a transaction blocks all other
// writers.
func (sqliteDatabase) kindOf(err error) (kind string, expected bool) {
	text := err.Error()
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, sql.ErrTxDone):
		return "timeout", true
	case strings.Contains(text, "locked"), strings.Contains(text, "busy"), strings.Contains(text, "interrupted"):
		return "locked", true
	}
	return fmt.Sprintf("%T", err), false
}

type sqliteSession struct {
	store *sqlite.Store
	tx    *sql.Tx
}

func (s sqliteSession) carry(ctx context.Context) context.Context { return s.store.WithTx(ctx, s.tx) }

func (s sqliteSession) advance(ctx context.Context, key string, by int) (n int, err error) {
	err = s.tx.QueryRowContext(ctx, "UPDATE accounts SET n = n + ?2 WHERE key = ?1 RETURNING n - ?2", key, by).Scan(&n)
	return n, err
}

func (s sqliteSession) record(ctx context.Context, uuid string, e entry) error {
	_, err := s.tx.ExecContext(ctx, "INSERT INTO ledger (uuid, key, n) VALUES (?, ?, ?)", uuid, e.key, e.n)
	return err
}

func (s sqliteSession) recordJoin(ctx context.Context, id outmill.JoinID, p promise) error {
	_, err := s.tx.ExecContext(ctx, "INSERT INTO started (id, steps, wanted) VALUES (?, ?, ?)", id.String(), p.steps, string(p.wanted))
	return err
}

func (s sqliteSession) doubt(ctx context.Context, fn func(session) error) error {
	if _, err := s.tx.ExecContext(ctx, "SAVEPOINT doubt"); err != nil {
		return err
	}
	return errors.Join(fn(s), s.back(ctx))
}

func (s sqliteSession) back(ctx context.Context) error {
	_, err := s.tx.ExecContext(ctx, "ROLLBACK TO doubt")
	return err
}
