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
	mssql "github.com/microsoft/go-mssqldb"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/sqlservertest"
	"github.com/outmill/outmill/sqlserver"
)

// sqlserverServer is a database on a server that does not belong to the test. Instead of
// restarting or killing the server, it ends all sessions of the database.
type sqlserverServer struct {
	database *url.URL
	db       *sql.DB
}

func serveSQLServer(t *testing.T) server {
	t.Helper()
	database, err := url.Parse(sqlservertest.Database(t))
	require.NoError(t, err)
	outside := *database
	outside.RawQuery = ""
	query := database.Query()
	query.Del("database")
	outside.RawQuery = query.Encode()
	db, err := sql.Open("sqlserver", outside.String())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return sqlserverServer{database, db}
}

func (s sqlserverServer) address() string {
	if s.database.Port() == "" {
		return net.JoinHostPort(s.database.Hostname(), "1433")
	}
	return s.database.Host
}

func (s sqlserverServer) url(address string) string {
	u := *s.database
	u.Host = address
	return u.String()
}

func (s sqlserverServer) restart(ctx context.Context) error {
	var sessions []int
	rows, err := s.db.QueryContext(ctx,
		"SELECT session_id FROM sys.dm_exec_sessions WHERE session_id IS NOT NULL AND session_id <> @@SPID AND database_id = DB_ID(@name)",
		sql.Named("name", s.database.Query().Get("database")))
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var session int
		if err := rows.Scan(&session); err != nil {
			return err
		}
		sessions = append(sessions, session)
	}
	for _, session := range sessions {
		if _, err := s.db.ExecContext(ctx, fmt.Sprint("KILL ", session)); err != nil && !isGone(err) {
			return err
		}
	}
	return rows.Err()
}

// isGone reports that the session ended by itself.
func isGone(err error) bool {
	var e mssql.Error
	return errors.As(err, &e) && (e.Number == 6106 || strings.Contains(e.Message, "not an active process"))
}

func (s sqlserverServer) crash(ctx context.Context) error { return s.restart(ctx) }

type sqlserverDatabase struct {
	store *sqlserver.Store
	sqlTables
}

func connectSQLServer(ctx context.Context, databaseURL string, logger watermill.LoggerAdapter) (database, error) {
	store, err := sqlserver.Open(ctx, databaseURL, sqlserver.Config{}, logger)
	if err != nil {
		return nil, err
	}
	store.DB().SetMaxOpenConns(8)
	store.DB().SetMaxIdleConns(8)
	return sqlserverDatabase{store, sqlTables{store.DB(), "[key]"}}, nil
}

func (d sqlserverDatabase) close() error { return d.store.Close() }

func (d sqlserverDatabase) outbox() outbox { return d.store }

func (d sqlserverDatabase) prepare(ctx context.Context) error {
	var errs []error
	for _, statement := range []string{
		"CREATE TABLE accounts ([key] NVARCHAR(40) NOT NULL PRIMARY KEY, n INT NOT NULL)",
		"CREATE TABLE ledger (uuid NVARCHAR(255) NOT NULL PRIMARY KEY, [key] NVARCHAR(40) NOT NULL, n INT NOT NULL)",
		"CREATE TABLE started (id NVARCHAR(36) NOT NULL PRIMARY KEY, steps INT NOT NULL, wanted NVARCHAR(40) NOT NULL)",
	} {
		_, err := d.store.DB().ExecContext(ctx, statement)
		errs = append(errs, err)
	}
	for i := range keyCount {
		_, err := d.store.DB().ExecContext(ctx, "INSERT accounts ([key], n) VALUES (@key, 0)", sql.Named("key", keyName(i)))
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (d sqlserverDatabase) transact(ctx context.Context, dice *rand.Rand, fn func(context.Context, session) error) error {
	if dice.IntN(3) == 0 {
		return d.store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error { return fn(ctx, sqlserverSession{d.store, tx}) })
	}
	return d.begin(ctx, nil, func(tx *sql.Tx) error { return fn(ctx, sqlserverSession{d.store, tx}) })
}

func (sqlserverDatabase) kindOf(err error) (kind string, expected bool) {
	var fromServer mssql.Error
	var fromNetwork net.Error
	text := err.Error()
	switch {
	case errors.As(err, &fromServer):
		// 596 is a killed session.
		return fmt.Sprint(fromServer.Number), fromServer.Number == 596
	// If the server does not confirm a cancellation in time, the driver gives up the connection,
	// and does not wrap the context's error.
	case errors.Is(err, context.DeadlineExceeded), strings.Contains(text, "did not get cancellation confirmation"):
		return "timeout", true
	case errors.As(err, &fromNetwork), errors.Is(err, io.EOF), errors.Is(err, sql.ErrConnDone), errors.Is(err, sql.ErrTxDone),
		strings.Contains(text, "EOF"), strings.Contains(text, "bad connection"), strings.Contains(text, "closed"),
		strings.Contains(text, "reset by peer"):
		return "connection lost", true
	}
	return fmt.Sprintf("%T", err), false
}

type sqlserverSession struct {
	store *sqlserver.Store
	tx    *sql.Tx
}

func (s sqlserverSession) carry(ctx context.Context) context.Context {
	return s.store.WithTx(ctx, s.tx)
}

func (s sqlserverSession) advance(ctx context.Context, key string, by int) (n int, err error) {
	err = s.tx.QueryRowContext(ctx, `SET NOCOUNT ON; UPDATE accounts SET n = n + @by WHERE [key] = @key;
SELECT n - @by FROM accounts WHERE [key] = @key`, sql.Named("key", key), sql.Named("by", by)).Scan(&n)
	return n, err
}

func (s sqlserverSession) record(ctx context.Context, uuid string, e entry) error {
	_, err := s.tx.ExecContext(ctx, "INSERT ledger (uuid, [key], n) VALUES (@uuid, @key, @n)", sql.Named("uuid", uuid),
		sql.Named("key", e.key), sql.Named("n", e.n))
	return err
}

func (s sqlserverSession) recordJoin(ctx context.Context, id outmill.JoinID, p promise) error {
	_, err := s.tx.ExecContext(ctx, "INSERT started (id, steps, wanted) VALUES (@id, @steps, @wanted)", sql.Named("id", id.String()),
		sql.Named("steps", p.steps), sql.Named("wanted", string(p.wanted)))
	return err
}

func (s sqlserverSession) doubt(ctx context.Context, fn func(session) error) error {
	if _, err := s.tx.ExecContext(ctx, "SAVE TRANSACTION doubt"); err != nil {
		return err
	}
	err := fn(s)
	_, undone := s.tx.ExecContext(ctx, "ROLLBACK TRANSACTION doubt")
	return errors.Join(err, undone)
}
