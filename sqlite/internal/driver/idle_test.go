package driver_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/sqlite/internal/driver"
	"github.com/outmill/outmill/storekit"
)

// counter opens connections whose statements it counts.
type counter struct {
	file string
	of   sqldriver.Driver
	n    *atomic.Int64
}

func (c counter) Driver() sqldriver.Driver { return c.of }

func (c counter) Connect(context.Context) (sqldriver.Conn, error) {
	conn, err := c.of.Open(c.file)
	if err != nil {
		return nil, err
	}
	return countedConn{conn.(fullConn), c.n}, nil
}

// fullConn is what database/sql uses of a connection of SQLite.
type fullConn interface {
	sqldriver.Conn
	sqldriver.ConnPrepareContext
	sqldriver.ConnBeginTx
	sqldriver.ExecerContext
	sqldriver.QueryerContext
	sqldriver.SessionResetter
	sqldriver.Validator
}

type countedConn struct {
	fullConn
	n *atomic.Int64
}

func (c countedConn) ExecContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	c.n.Add(1)
	return c.fullConn.ExecContext(ctx, query, args)
}

func (c countedConn) QueryContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	c.n.Add(1)
	return c.fullConn.QueryContext(ctx, query, args)
}

func (c countedConn) PrepareContext(ctx context.Context, query string) (sqldriver.Stmt, error) {
	stmt, err := c.fullConn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return countedStmt{stmt.(fullStmt), c.n}, nil
}

type fullStmt interface {
	sqldriver.Stmt
	sqldriver.StmtExecContext
	sqldriver.StmtQueryContext
}

type countedStmt struct {
	fullStmt
	n *atomic.Int64
}

func (s countedStmt) ExecContext(ctx context.Context, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	s.n.Add(1)
	return s.fullStmt.ExecContext(ctx, args)
}

func (s countedStmt) QueryContext(ctx context.Context, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	s.n.Add(1)
	return s.fullStmt.QueryContext(ctx, args)
}

// idleStatements returns how many statements ten claims need where another process has handled all records. (The process
// that has handled them still looks at their topics for a moment.)
func idleStatements(t *testing.T, req outmill.ClaimRequest, fair ...string) int64 {
	t.Helper()
	path, config := filepath.Join(t.TempDir(), "outbox.db"), engine.Config{Name: "idle", FairTopics: fair}
	other := openFile(t, path, config, &atomic.Int64{})
	require.NoError(t, other.Ensure(t.Context()))
	require.NoError(t, other.RegisterGroup(t.Context(), outmill.Registration{Group: req.Group}))
	const records = 40
	for i := range records {
		require.NoError(t, other.Append(t.Context(), &outmill.Record{Topic: "orders", Key: "k", TenantID: fmt.Sprint("t", i)}))
	}
	for done := 0; done < records; {
		found, err := other.Claim(t.Context(), req)
		require.NoError(t, err)
		leases := make([]outmill.Lease, len(found))
		for i, r := range found {
			leases[i] = r.Lease()
		}
		require.NoError(t, other.Ack(t.Context(), "", leases))
		done += len(found)
	}

	n := &atomic.Int64{}
	db := sql.OpenDB(counter{"file:" + path + "?_txlock=immediate&_pragma=journal_mode(WAL)", other.DB().Driver(), n})
	d := driver.New(db, driver.Config{Name: "idle", Prefix: "outmill_", BusyTimeout: time.Minute, Owned: true})
	s := store{engine.New(d, config), d}
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	claim := func(times int) int64 {
		before := n.Load()
		for range times {
			found, err := s.Claim(t.Context(), req)
			require.NoError(t, err)
			require.Empty(t, found)
		}
		return n.Load() - before
	}
	claim(5) // they read the registrations, and prepare statements
	return claim(10)
}

func TestClaim_FairTopicsNeedNoMoreStatementsWhenIdle(t *testing.T) {
	t.Parallel()
	for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey} {
		for name, topics := range map[string]outmill.Topics{"all topics": {}, "one topic": {Include: []string{"orders"}}} {
			t.Run(order.String()+", "+name, func(t *testing.T) {
				t.Parallel()
				req := outmill.ClaimRequest{
					Owner: outmill.NewOwnerToken(), Group: storekit.GroupOf(""), Topics: topics, Limit: 20, Lease: time.Minute, Order: order,
				}
				want := idleStatements(t, req)
				require.Positive(t, want)
				require.Equal(t, want, idleStatements(t, req, "orders"), "statements of ten claims")
			})
		}
	}
}
