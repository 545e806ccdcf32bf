package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/outmill/outmill/internal/testenv/mysqlengine"
	"github.com/outmill/outmill/mysql"
)

// errNoMySQL says that there is no server.
var errNoMySQL = errors.New("no MariaDB or MySQL (give one with -mysql, or install mariadb-server)")

// mysqlSettings are settings for production on a small machine: the server waits for the disk.
var mysqlSettings = []string{
	"--innodb-flush-log-at-trx-commit=1", "--innodb-doublewrite=1", "--innodb-buffer-pool-size=1G", "--innodb-log-file-size=1G",
}

// mysql returns the URL of a server.
func (e *engines) mysql(ctx context.Context) (string, error) {
	if e.mysqlURL = cmp.Or(e.mysqlURL, os.Getenv(mysqlengine.EnvURL)); e.mysqlURL != "" {
		return e.mysqlURL, nil
	}
	dir, err := os.MkdirTemp("", "outmill-bench-mysql-")
	if err != nil {
		return "", err
	}
	e.log("starting MariaDB")
	engine, err := mysqlengine.Prepare(ctx, dir, mysqlSettings...)
	if err == nil {
		err = engine.Start(ctx)
	}
	if err != nil {
		return "", errors.Join(errNoMySQL, err, os.RemoveAll(dir))
	}
	e.ends = append(e.ends, engine.End)
	e.mysqlURL = engine.URL
	return engine.URL, nil
}

// mysqlStore makes an empty database, and a store on it. Both are removed when the bench ends.
func (b *bench) mysqlStore(ctx context.Context, name string) (*mysql.Store, error) {
	server, err := b.engines.mysql(ctx)
	if err != nil {
		return nil, err
	}
	admin, err := mysqlengine.Open(server, "")
	if err != nil {
		return nil, err
	}
	b.engines.ends = append(b.engines.ends, func() { _ = admin.Close() })
	name = fmt.Sprintf("bench_%s_%d_%d", name, os.Getpid(), databaseNumber.Add(1))
	if _, err := admin.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		return nil, err
	}
	b.engines.ends = append(b.engines.ends, func() { _, _ = admin.ExecContext(context.WithoutCancel(ctx), "DROP DATABASE "+name) })
	if !slices.ContainsFunc(b.results.facts, func(fact [2]string) bool { return fact[0] == "mysql" }) {
		var version string
		if err := admin.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
			return nil, err
		}
		b.results.fact("mysql", version)
	}
	return mysql.Open(ctx, strings.TrimSuffix(server, "/")+"/"+name, mysql.Config{EnsureSchema: true}, nil)
}
