package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/go-sql-driver/mysql"

	"github.com/outmill/outmill/internal/clock"
	"github.com/outmill/outmill/mysql/internal/driver"
	"github.com/outmill/outmill/storekit"
)

const (
	idleConnections = 8
	defaultPort     = "3306"
)

// Open opens a pool of connections, and makes a store on it, whose Close closes the pool. Open does not create the schema, unless
// Config.EnsureSchema is set: see Ensure. A nil logger logs nothing.
//
// database is a URL (mysql://user:password@host:3306/orders, or mariadb://…), or a DSN of go-sql-driver/mysql
// (user:password@tcp(host:3306)/orders). The parameters of both are those of the driver (tls, timeout, …), and any other name is a
// variable of the session. The parameter socket of a URL is the path of a Unix socket, which replaces the host.
//
// Up to 8 idle connections are kept for a minute. The number of open connections is not limited (DB().SetMaxOpenConns). If the context
// has a storekit.ConnectionBudget, as that of tenants.Config.Open can have, the pool takes its connections from it.
func Open(ctx context.Context, database string, config Config, logger watermill.LoggerAdapter) (*Store, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	source, err := parseSource(database)
	if err != nil {
		return nil, err
	}
	if config.Name == "" {
		config.Name = "mysql:" + source.DBName
	}
	config.setDefaults()
	share := joined(ctx, source)
	own := driver.Config{Owned: true, Ahead: clock.AheadOf(ctx), Leave: func() {}}
	if share != nil {
		own.Leave = share.Leave
	}
	connector, err := mysql.NewConnector(source)
	if err != nil {
		own.Leave()
		return nil, storekit.InvalidConfig("mysql.Open: %w", err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxIdleConns(idleConnections)
	db.SetConnMaxIdleTime(time.Minute)
	if share != nil {
		share.Serve(idleOf{db})
	}
	store := newStore(db, config, logger, own)
	if err = db.PingContext(ctx); err == nil && config.EnsureSchema {
		err = store.Ensure(ctx)
	}
	if err != nil {
		_ = store.Close()
		return nil, fmt.Errorf("outmill/mysql: open %s: %w", source.Addr, err)
	}
	return store, nil
}

// parseSource reads a URL or a DSN.
func parseSource(database string) (*mysql.Config, error) {
	const want = "want mysql://user:password@host:3306/database, or a DSN such as user:password@tcp(host:3306)/database"
	scheme, _, isURL := strings.Cut(database, "://")
	if !isURL || strings.ContainsAny(scheme, ":@/") {
		source, err := mysql.ParseDSN(database)
		if err != nil || source.DBName == "" {
			// The error of the driver may quote a part of the password.
			return nil, storekit.InvalidConfig("mysql.Open: the DSN cannot be read, or names no database: %s", want)
		}
		return source, nil
	}
	parameters, err := storekit.ParseURL(database)
	if err != nil {
		return nil, err
	}
	socket := ""
	parameters.Text("socket", &socket)
	return sourceOf(parameters.URL(), socket, want)
}

// sourceOf makes the settings of the driver of a URL.
func sourceOf(u *url.URL, socket, want string) (*mysql.Config, error) {
	source, err := mysql.ParseDSN("/?" + u.RawQuery)
	if err != nil {
		return nil, storekit.InvalidConfig("mysql.Open: the parameters of the URL: %w", err)
	}
	source.DBName = strings.TrimPrefix(u.Path, "/")
	if source.DBName == "" || strings.Contains(source.DBName, "/") {
		return nil, storekit.InvalidConfig("mysql.Open: the URL names no database: %s", want)
	}
	source.User = u.User.Username()
	source.Passwd, _ = u.User.Password()
	source.Net, source.Addr = "tcp", u.Host
	switch {
	case socket != "":
		source.Net, source.Addr = "unix", socket
	case u.Hostname() == "":
		source.Addr = net.JoinHostPort("127.0.0.1", defaultPort)
	case u.Port() == "":
		source.Addr = net.JoinHostPort(u.Hostname(), defaultPort)
	}
	return source, nil
}

// joined has the connections of the pool come from the budget of the context, if there is one.
func joined(ctx context.Context, source *mysql.Config) (share *storekit.BudgetedPool) {
	budget := storekit.ConnectionBudgetOf(ctx)
	if budget == nil {
		return nil
	}
	share = budget.Join()
	dial := share.Dialer(new(net.Dialer).DialContext)
	source.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		return dial(ctx, network, address)
	}
	return share
}

// idleOf is a storekit.IdleConnections.
type idleOf struct{ db *sql.DB }

func (p idleOf) Idle() int { return p.db.Stats().Idle }

func (p idleOf) CloseIdle() {
	p.db.SetMaxIdleConns(-1)
	p.db.SetMaxIdleConns(idleConnections)
}
