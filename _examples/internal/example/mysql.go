package example

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"

	driver "github.com/go-sql-driver/mysql"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/mysql"
)

const (
	mysqlScheme = "mysql://"
	mysqlSample = "mysql://user:password@localhost:3306"
)

// openMySQL makes a database. The application and the outbox share a pool. The user of the URL needs the right to create databases.
func openMySQL(ctx context.Context, address string) (*SQL, func(context.Context) error, error) {
	server, err := mysqlPool(address, "")
	if err != nil {
		return nil, nil, err
	}
	name := UniqueName()
	if _, err := server.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%s: create a database: %w", outmill.RedactURL(address), err), server.Close())
	}
	drop := func(ctx context.Context) error {
		_, err := server.ExecContext(ctx, "DROP DATABASE "+name)
		return errors.Join(err, server.Close())
	}
	db, err := mysqlPool(address, name)
	if err != nil {
		return nil, nil, errors.Join(err, drop(context.WithoutCancel(ctx)))
	}
	store, err := mysql.New(db, mysql.Config{}, nil)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close(), drop(context.WithoutCancel(ctx)))
	}
	return (&SQL{DB: db, Dialect: MySQL, Store: store, Path: name}).start(ctx, drop)
}

// mysqlPool opens a pool of go-sql-driver/mysql, which takes the parts of the address, and no URL.
func mysqlPool(address, database string) (*sql.DB, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("-database is %s: want a URL such as %s", outmill.RedactURL(address), mysqlSample)
	}
	config := driver.NewConfig()
	config.User, config.Net, config.Addr, config.DBName = u.User.Username(), "tcp", u.Host, database
	config.Passwd, _ = u.User.Password()
	connector, err := driver.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", outmill.RedactURL(address), err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(poolSize)
	db.SetMaxIdleConns(poolSize)
	return db, nil
}
