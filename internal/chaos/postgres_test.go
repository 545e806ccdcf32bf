//go:build unix

package chaos_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/postgresengine"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres"
)

type postgresServer struct{ *postgresengine.Engine }

func servePostgres(t *testing.T) server {
	t.Helper()
	return postgresServer{postgrestest.Own(t, "fsync=on", "full_page_writes=on", "synchronous_commit=on")}
}

func (s postgresServer) address() string { return s.parsed().Host }

func (s postgresServer) url(address string) string {
	u := s.parsed()
	u.Host = address
	return u.String()
}

func (s postgresServer) parsed() *url.URL {
	u, err := url.Parse(s.URL)
	if err != nil {
		panic(err)
	}
	return u
}

func (s postgresServer) restart(ctx context.Context) error {
	return s.Restart(ctx, postgresengine.Fast)
}

func (s postgresServer) crash(ctx context.Context) error {
	if err := s.Kill(ctx); err != nil {
		return err
	}
	return s.Start(ctx)
}

// postgresDatabase has connections of both kinds that the store takes.
type postgresDatabase struct {
	store *postgres.Store
	sql   *sql.DB
}

func connectPostgres(ctx context.Context, databaseURL string, logger watermill.LoggerAdapter) (database, error) {
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return nil, err
	}
	store, err := postgres.Open(ctx, databaseURL, postgres.Config{}, logger)
	if err != nil {
		return nil, err
	}
	return postgresDatabase{store, stdlib.OpenDB(*config)}, nil
}

func (d postgresDatabase) close() error { return errors.Join(d.sql.Close(), d.store.Close()) }

func (d postgresDatabase) outbox() outbox { return d.store }

func (d postgresDatabase) prepare(ctx context.Context) error {
	_, err := d.store.Pool().Exec(ctx, `
		CREATE TABLE accounts (key text PRIMARY KEY, n int NOT NULL);
		CREATE TABLE ledger (uuid text PRIMARY KEY, key text NOT NULL, n int NOT NULL);
		CREATE TABLE started (id uuid PRIMARY KEY, steps int NOT NULL, wanted text NOT NULL)`)
	for i := range keyCount {
		_, inserted := d.store.Pool().Exec(ctx, "INSERT INTO accounts (key, n) VALUES ($1, 0)", keyName(i))
		err = errors.Join(err, inserted)
	}
	return err
}

func (d postgresDatabase) transact(ctx context.Context, dice *rand.Rand, fn func(context.Context, session) error) error {
	if dice.IntN(3) > 0 {
		return pgx.BeginFunc(ctx, d.store.Pool(), func(tx pgx.Tx) error { return fn(ctx, d.session(pgxTx{tx})) })
	}
	tx, err := d.sql.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := fn(ctx, d.session(sqlTx{tx})); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (d postgresDatabase) ledger(ctx context.Context) (map[string]entry, error) {
	ledger := map[string]entry{}
	var uuid string
	var e entry
	rows, err := d.store.Pool().Query(ctx, "SELECT uuid, key, n FROM ledger")
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&uuid, &e.key, &e.n}, func() error {
			ledger[uuid] = e
			return nil
		})
	}
	return ledger, err
}

func (d postgresDatabase) promised(ctx context.Context) (map[outmill.JoinID]promise, error) {
	all := map[outmill.JoinID]promise{}
	var id outmill.JoinID
	var p promise
	rows, err := d.store.Pool().Query(ctx, "SELECT id::text, steps, wanted FROM started")
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&id, &p.steps, &p.wanted}, func() error {
			all[id] = p
			return nil
		})
	}
	return all, err
}

func (postgresDatabase) kindOf(err error) (kind string, expected bool) {
	var fromServer *pgconn.PgError
	var fromNetwork net.Error
	var connecting *pgconn.ConnectError
	text := err.Error()
	switch {
	case errors.As(err, &fromServer):
		// Shutdown and crash: class 57.
		return fromServer.Code, strings.HasPrefix(fromServer.Code, "57P0")
	case errors.As(err, &connecting):
		return "no connection", true
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout", true
	case errors.As(err, &fromNetwork), errors.Is(err, sql.ErrConnDone), errors.Is(err, sql.ErrTxDone),
		strings.Contains(text, "conn closed"), strings.Contains(text, "EOF"), strings.Contains(text, "bad connection"),
		strings.Contains(text, "closed"):
		return "connection lost", true
	}
	return fmt.Sprintf("%T", err), false
}

// postgresTx is a transaction of either kind.
type postgresTx interface {
	queryInt(ctx context.Context, text string, args ...any) (int, error)
	exec(ctx context.Context, text string, args ...any) error
	// doubt runs fn in a savepoint and rolls the savepoint back.
	doubt(ctx context.Context, fn func(tx postgresTx) error) error
	// handle is the argument for postgres.Store.WithTx.
	handle() any
}

type postgresSession struct {
	store *postgres.Store
	tx    postgresTx
}

func (d postgresDatabase) session(tx postgresTx) session { return postgresSession{d.store, tx} }

func (s postgresSession) carry(ctx context.Context) context.Context {
	return s.store.WithTx(ctx, s.tx.handle())
}

func (s postgresSession) advance(ctx context.Context, key string, by int) (int, error) {
	return s.tx.queryInt(ctx, "UPDATE accounts SET n = n + $2::int WHERE key = $1 RETURNING n - $2::int", key, by)
}

func (s postgresSession) record(ctx context.Context, uuid string, e entry) error {
	return s.tx.exec(ctx, "INSERT INTO ledger (uuid, key, n) VALUES ($1, $2, $3)", uuid, e.key, e.n)
}

func (s postgresSession) recordJoin(ctx context.Context, id outmill.JoinID, p promise) error {
	return s.tx.exec(ctx, "INSERT INTO started (id, steps, wanted) VALUES ($1::text::uuid, $2, $3::text)", id.String(), p.steps,
		string(p.wanted))
}

func (s postgresSession) doubt(ctx context.Context, fn func(session) error) error {
	return s.tx.doubt(ctx, func(tx postgresTx) error { return fn(postgresSession{s.store, tx}) })
}

type pgxTx struct{ tx pgx.Tx }

func (t pgxTx) queryInt(ctx context.Context, text string, args ...any) (n int, err error) {
	err = t.tx.QueryRow(ctx, text, args...).Scan(&n)
	return n, err
}

func (t pgxTx) exec(ctx context.Context, text string, args ...any) error {
	_, err := t.tx.Exec(ctx, text, args...)
	return err
}

func (t pgxTx) doubt(ctx context.Context, fn func(postgresTx) error) error {
	nested, err := t.tx.Begin(ctx)
	if err != nil {
		return err
	}
	return errors.Join(fn(pgxTx{nested}), nested.Rollback(ctx))
}

func (t pgxTx) handle() any { return t.tx }

type sqlTx struct{ tx *sql.Tx }

func (t sqlTx) queryInt(ctx context.Context, text string, args ...any) (n int, err error) {
	err = t.tx.QueryRowContext(ctx, text, args...).Scan(&n)
	return n, err
}

func (t sqlTx) exec(ctx context.Context, text string, args ...any) error {
	_, err := t.tx.ExecContext(ctx, text, args...)
	return err
}

func (t sqlTx) doubt(ctx context.Context, fn func(postgresTx) error) error {
	if err := t.exec(ctx, "SAVEPOINT doubt"); err != nil {
		return err
	}
	return errors.Join(fn(t), t.exec(ctx, "ROLLBACK TO SAVEPOINT doubt"))
}

func (t sqlTx) handle() any { return t.tx }
