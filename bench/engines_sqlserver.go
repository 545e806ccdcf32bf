package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"

	_ "github.com/microsoft/go-mssqldb" // the driver
)

// envSQLServerURL is the variable that the tests use, too.
const envSQLServerURL = "OUTMILL_TEST_SQLSERVER_URL"

// errNoSQLServer says that there is no server. The bench cannot start one.
var errNoSQLServer = errors.New("no SQL Server (give one with -sqlserver, or " + envSQLServerURL + ")")

// sqlserver returns the URL of a server.
func (e *engines) sqlserver() (*url.URL, error) {
	server := cmp.Or(e.sqlserverURL, os.Getenv(envSQLServerURL))
	if server == "" {
		return nil, errNoSQLServer
	}
	parsed, err := url.Parse(server)
	if err != nil || parsed.Scheme != "sqlserver" {
		return nil, errors.New("-sqlserver wants a URL such as sqlserver://user:password@host:1433")
	}
	return parsed, nil
}

// sqlserverDatabase makes an empty database, and a pool on it. Both are removed when the bench
// ends.
func (b *bench) sqlserverDatabase(ctx context.Context, name string) (*sql.DB, error) {
	server, err := b.engines.sqlserver()
	if err != nil {
		return nil, err
	}
	master, err := sql.Open("sqlserver", server.String())
	if err != nil {
		return nil, err
	}
	b.engines.ends = append(b.engines.ends, func() { _ = master.Close() })
	name = fmt.Sprintf("bench_%s_%d", name, os.Getpid())
	for _, statement := range []string{"CREATE DATABASE " + name, "ALTER DATABASE " + name + " SET READ_COMMITTED_SNAPSHOT ON"} {
		if _, err := master.ExecContext(ctx, statement); err != nil {
			return nil, err
		}
	}
	b.engines.ends = append(b.engines.ends, func() {
		_, _ = master.ExecContext(context.WithoutCancel(ctx), "DROP DATABASE "+name)
	})
	query := server.Query()
	query.Set("database", name)
	server.RawQuery = query.Encode()
	db, err := sql.Open("sqlserver", server.String())
	if err != nil {
		return nil, err
	}
	b.engines.ends = append(b.engines.ends, func() { _ = db.Close() })
	return db, b.describeSQLServer(ctx, db)
}

// describeSQLServer notes once the version and the settings on which the numbers depend.
func (b *bench) describeSQLServer(ctx context.Context, db *sql.DB) error {
	if slices.ContainsFunc(b.results.facts, func(fact [2]string) bool { return fact[0] == "sqlserver" }) {
		return nil
	}
	var version string
	err := db.QueryRowContext(ctx, `SELECT CAST(SERVERPROPERTY('ProductVersion') AS VARCHAR(100))`).Scan(&version)
	if err != nil {
		return err
	}
	b.results.fact("sqlserver", version)
	return nil
}
