//go:build unix

package chaos_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	driver "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/mysqlengine"
	"github.com/outmill/outmill/internal/testenv/mysqltest"
	"github.com/outmill/outmill/mysql"
)

// mysqlServer is a MariaDB of the test's own, which waits for the disk, so that a crash loses nothing.
type mysqlServer struct {
	engine   *mysqlengine.Engine
	database *url.URL
}

func serveMySQL(t *testing.T) server {
	t.Helper()
	engine := mysqltest.Own(t, "--innodb-flush-log-at-trx-commit=1", "--innodb-doublewrite=1")
	database, err := url.Parse(mysqltest.DatabaseOn(t, engine.URL))
	require.NoError(t, err)
	return mysqlServer{engine, database}
}

func (s mysqlServer) address() string { return s.database.Host }

func (s mysqlServer) url(address string) string {
	u := *s.database
	u.Host = address
	return u.String()
}

func (s mysqlServer) restart(ctx context.Context) error {
	return errors.Join(s.engine.Stop(ctx), s.engine.Start(ctx))
}

func (s mysqlServer) crash(ctx context.Context) error {
	return errors.Join(s.engine.Kill(ctx), s.engine.Start(ctx))
}

type mysqlDatabase struct {
	store *mysql.Store
	sqlTables
}

func connectMySQL(ctx context.Context, databaseURL string, logger watermill.LoggerAdapter) (database, error) {
	store, err := mysql.Open(ctx, databaseURL, mysql.Config{}, logger)
	if err != nil {
		return nil, err
	}
	return mysqlDatabase{store, sqlTables{store.DB(), "name"}}, nil
}

func (d mysqlDatabase) close() error { return d.store.Close() }

func (d mysqlDatabase) outbox() outbox { return d.store }

func (d mysqlDatabase) prepare(ctx context.Context) error {
	var errs []error
	for _, statement := range []string{
		"CREATE TABLE accounts (name VARCHAR(40) NOT NULL PRIMARY KEY, n INT NOT NULL)",
		"CREATE TABLE ledger (uuid VARCHAR(255) NOT NULL PRIMARY KEY, name VARCHAR(40) NOT NULL, n INT NOT NULL)",
		"CREATE TABLE started (id VARCHAR(36) NOT NULL PRIMARY KEY, steps INT NOT NULL, wanted VARCHAR(40) NOT NULL)",
	} {
		_, err := d.store.DB().ExecContext(ctx, statement)
		errs = append(errs, err)
	}
	for i := range keyCount {
		_, err := d.store.DB().ExecContext(ctx, "INSERT INTO accounts (name, n) VALUES (?, 0)", keyName(i))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// transact uses each level that programs have.
func (d mysqlDatabase) transact(ctx context.Context, dice *rand.Rand, fn func(context.Context, session) error) error {
	if dice.IntN(3) == 0 {
		return d.store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error { return fn(ctx, mysqlSession{d.store, tx}) })
	}
	levels := []sql.IsolationLevel{sql.LevelDefault, sql.LevelReadCommitted}
	options := &sql.TxOptions{Isolation: levels[dice.IntN(len(levels))]}
	return d.begin(ctx, options, func(tx *sql.Tx) error { return fn(ctx, mysqlSession{d.store, tx}) })
}

func (mysqlDatabase) kindOf(err error) (kind string, expected bool) {
	var fromServer *driver.MySQLError
	var fromNetwork net.Error
	text := err.Error()
	switch {
	case errors.As(err, &fromServer):
		// A server that stops ends sessions (1053, 1927); two writers lock the same rows (1205, 1213), or change them behind a snapshot (1020).
		switch fromServer.Number {
		case 1020, 1053, 1205, 1213, 1927:
			return fmt.Sprint(fromServer.Number), true
		}
		return fmt.Sprint(fromServer.Number), false
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout", true
	case errors.As(err, &fromNetwork), errors.Is(err, io.EOF), errors.Is(err, sql.ErrConnDone), errors.Is(err, sql.ErrTxDone),
		errors.Is(err, driver.ErrInvalidConn), strings.Contains(text, "EOF"), strings.Contains(text, "bad connection"),
		strings.Contains(text, "closed"), strings.Contains(text, "reset by peer"):
		return "connection lost", true
	}
	return fmt.Sprintf("%T", err), false
}

type mysqlSession struct {
	store *mysql.Store
	tx    *sql.Tx
}

func (s mysqlSession) carry(ctx context.Context) context.Context { return s.store.WithTx(ctx, s.tx) }

func (s mysqlSession) advance(ctx context.Context, key string, by int) (n int, err error) {
	if _, err := s.tx.ExecContext(ctx, "UPDATE accounts SET n = n + ? WHERE name = ?", by, key); err != nil {
		return 0, err
	}
	err = s.tx.QueryRowContext(ctx, "SELECT n - ? FROM accounts WHERE name = ?", by, key).Scan(&n)
	return n, err
}

func (s mysqlSession) record(ctx context.Context, uuid string, e entry) error {
	_, err := s.tx.ExecContext(ctx, "INSERT INTO ledger (uuid, name, n) VALUES (?, ?, ?)", uuid, e.key, e.n)
	return err
}

func (s mysqlSession) recordJoin(ctx context.Context, id outmill.JoinID, p promise) error {
	_, err := s.tx.ExecContext(ctx, "INSERT INTO started (id, steps, wanted) VALUES (?, ?, ?)", id.String(), p.steps, string(p.wanted))
	return err
}

func (s mysqlSession) doubt(ctx context.Context, fn func(session) error) error {
	if _, err := s.tx.ExecContext(ctx, "SAVEPOINT doubt"); err != nil {
		return err
	}
	err := fn(s)
	_, undone := s.tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT doubt")
	return errors.Join(err, undone)
}
