package mysql_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/mysqltest"
	"github.com/outmill/outmill/mysql"
	"github.com/outmill/outmill/storetest"
)

// counted is a caller's transaction that counts the statements.
type counted struct {
	tx *sql.Tx
	n  int
}

func (c *counted) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	c.n++
	return c.tx.ExecContext(ctx, query, args...)
}

func (c *counted) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	c.n++
	return c.tx.QueryContext(ctx, query, args...)
}

// shop has a store with a group that reads all, and a process that only publishes.
type shop struct {
	harness
	publishes *mysql.Store
}

func openShop(t *testing.T) shop {
	t.Helper()
	h := suite(t, 0).New(t, storetest.Options{}).(harness)
	if !mysqltest.IsMariaDB(t, h.admin) {
		t.Skip("skipped: MySQL takes compound statements only in programs; OUTMILL_TEST_MYSQL_URL may name a MariaDB")
	}
	require.NoError(t, h.store.RegisterGroup(t.Context(), outmill.Registration{Group: "readers"}))
	s := shop{h, h.open(h.config)}
	require.NoError(t, s.publishes.Append(t.Context(), &outmill.Record{Topic: "orders", MessageID: "first"}))
	return s
}

// publish appends in a transaction, and returns the number of its statements.
func (s shop) publish(level sql.IsolationLevel, records ...*outmill.Record) int {
	s.t.Helper()
	tx, err := s.db.BeginTx(s.t.Context(), &sql.TxOptions{Isolation: level})
	require.NoError(s.t, err)
	defer func() { _ = tx.Rollback() }()
	statements := &counted{tx: tx}
	require.NoError(s.t, s.publishes.Append(s.publishes.WithTx(s.t.Context(), statements), records...))
	require.NoError(s.t, tx.Commit())
	return statements.n
}

// microseconds returns the columns of a row.
func (s shop) microseconds(query string) []int64 {
	s.t.Helper()
	rows, err := s.admin.QueryContext(s.t.Context(), strings.ReplaceAll(query, "{}", s.config.TablePrefix))
	require.NoError(s.t, err)
	defer func() { require.NoError(s.t, rows.Close()) }()
	columns, err := rows.Columns()
	require.NoError(s.t, err)
	values, into := make([]int64, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	require.True(s.t, rows.Next())
	require.NoError(s.t, rows.Scan(into...))
	require.NoError(s.t, rows.Err())
	return values
}

func (s shop) claimed(group string) (names []string) {
	s.t.Helper()
	got, err := s.store.Claim(s.t.Context(), outmill.ClaimRequest{
		Owner: outmill.NewOwnerToken(), Group: group, Limit: 100, Lease: time.Minute, Order: outmill.OrderKey,
	})
	require.NoError(s.t, err)
	for _, r := range got {
		names = append(names, r.MessageID)
	}
	return names
}

func TestAppendWithin(t *testing.T) {
	t.Parallel()
	of := func(name string) *outmill.Record { return &outmill.Record{Topic: "orders", MessageID: name, Key: "k"} }

	t.Run("an append in a caller's transaction is one statement, at each level", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		require.Equal(t, 1, s.publish(sql.LevelReadCommitted, of("a")))
		require.Equal(t, 1, s.publish(sql.LevelDefault, of("b"), of("c?"), &outmill.Record{
			Topic: "orders", MessageID: "d", TenantID: "t", CorrelationID: "ü", Metadata: map[string]string{"a": "b?1"}, Payload: []byte("';?"),
		}))
		large := &outmill.Record{Topic: "orders", MessageID: "e", Payload: make([]byte, 1<<20)}
		require.Greater(t, s.publish(sql.LevelDefault, large), 1, "a large payload is a parameter, which a compound statement cannot have")
		require.Equal(t, []string{"first", "a", "b", "c?", "d", "e"}, s.claimed("readers"))
	})

	t.Run("one whose registrations have changed reads them, and is delivered to each group once", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		require.NoError(t, s.store.RegisterGroup(t.Context(), outmill.Registration{Group: "later"}))
		require.Greater(t, s.publish(sql.LevelDefault, of("a")), 1)
		require.Equal(t, 1, s.publish(sql.LevelDefault, of("b")))
		require.Equal(t, []string{"first", "a", "b"}, s.claimed("readers"))
		require.Equal(t, []string{"a", "b"}, s.claimed("later"))
	})

	t.Run("at REPEATABLE READ it is for the groups of the snapshot, and holds up no registration", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		tx, err := s.db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		ctx := s.publishes.WithTx(t.Context(), tx)
		require.NoError(t, s.publishes.Append(ctx, of("a")))
		require.NoError(t, s.store.RegisterGroup(t.Context(), outmill.Registration{Group: "later"}))
		require.NoError(t, s.publishes.Append(ctx, of("b")))
		require.NoError(t, tx.Commit())
		require.Equal(t, []string{"first", "a", "b"}, s.claimed("readers"))
		require.Empty(t, s.claimed("later"))
	})

	t.Run("its times count from the moment of the append, and not from that of the last call", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		s.Elapse(s.store, time.Hour)
		began := s.microseconds("SELECT TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(6))")[0]
		delayed, ends := of("delayed"), of("ends")
		delayed.Delay, ends.TimeToLive = time.Hour, time.Minute
		require.Equal(t, 1, s.publish(sql.LevelDefault, delayed, ends))
		const columns = "SELECT created_at, due_at - created_at, next_at - created_at, wake_at, expires_at FROM {}records WHERE message_id = "
		got := s.microseconds(columns + "'delayed'")
		require.GreaterOrEqual(t, got[0], began+time.Hour.Microseconds())
		require.Equal(t, []int64{time.Hour.Microseconds(), time.Hour.Microseconds(), got[0] + time.Hour.Microseconds(), 0}, got[1:])
		require.Equal(t, []int64{got[0], 0, 0, 0, got[0] + time.Minute.Microseconds()}, s.microseconds(columns+"'ends'"))
		fixed := of("fixed")
		fixed.DueAt = time.Now().Add(3 * time.Hour)
		require.Greater(t, s.publish(sql.LevelDefault, fixed), 1, "a time of its own has to be compared with the server's")
	})

	t.Run("a server that takes no such statement gets several", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		tx, err := s.db.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		_, err = tx.ExecContext(t.Context(), "SET SESSION sql_mode = 'ORACLE'")
		require.NoError(t, err)
		require.NoError(t, s.publishes.Append(s.publishes.WithTx(t.Context(), tx), of("a")))
		require.NoError(t, tx.Commit())
		require.Equal(t, []string{"first", "a"}, s.claimed("readers"))
	})
}
