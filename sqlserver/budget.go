package sqlserver

import (
	"context"
	"database/sql"
	"net"
	"time"

	mssql "github.com/microsoft/go-mssqldb"
	"github.com/microsoft/go-mssqldb/msdsn"

	"github.com/outmill/outmill/storekit"
)

// keepAlive is the driver's default.
const keepAlive = 30 * time.Second

// idleKept is how many idle connections a pool of database/sql keeps by default.
const idleKept = 2

// openWithin opens the pool of a connection string. It takes its connections from the budget of the context, if there
// is one.
func openWithin(ctx context.Context, parsed msdsn.Config) (db *sql.DB, leave func()) {
	connector := mssql.NewConnectorConfig(parsed)
	budget := storekit.ConnectionBudgetOf(ctx)
	if budget == nil {
		return sql.OpenDB(connector), func() {}
	}
	share := budget.Join()
	if parsed.KeepAlive == 0 {
		parsed.KeepAlive = keepAlive
	}
	connector.Dialer = budgetedDialer{share: share, dialer: &net.Dialer{KeepAlive: parsed.KeepAlive}}
	db = sql.OpenDB(connector)
	share.Serve(idleOf{db})
	return db, share.Leave
}

// budgetedDialer dials the connections of one pool.
type budgetedDialer struct {
	share  *storekit.BudgetedPool
	dialer *net.Dialer
}

// DialContext is the driver's mssql.Dialer. It is called once for each connection, or more often if the server has
// several addresses.
func (d budgetedDialer) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	return d.share.Dialer(d.dialer.DialContext)(ctx, network, addr)
}

// idleOf is a storekit.IdleConnections.
type idleOf struct{ db *sql.DB }

func (p idleOf) Idle() int { return p.db.Stats().Idle }

func (p idleOf) CloseIdle() {
	p.db.SetMaxIdleConns(-1)
	p.db.SetMaxIdleConns(idleKept)
}
