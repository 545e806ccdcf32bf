package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/_examples/internal/example"
)

// database belongs to one run.
type database struct {
	*sql.DB
	name string
}

// onSQLServer creates a database and runs the program in it. The user of the URL needs the right to
// create databases.
var onSQLServer = example.Engine[database]{
	Sample:  "sqlserver://user:password@localhost:1433",
	Default: "sqlserver://sa@localhost:1433",
	Open:    openDatabase,
}

func openDatabase(ctx context.Context, url string) (database, func(context.Context) error, error) {
	server, err := openPool(url, "")
	if err != nil {
		return database{}, nil, err
	}
	name := example.UniqueName()
	if _, err := server.ExecContext(ctx, "CREATE DATABASE "+name); err != nil {
		return database{}, nil, errors.Join(fmt.Errorf("%s: create a database: %w", outmill.RedactURL(url), err), server.Close())
	}
	// Claims read one moment of a topic: see docs/sqlserver.md.
	if _, err := server.ExecContext(ctx, "ALTER DATABASE "+name+" SET READ_COMMITTED_SNAPSHOT ON"); err != nil {
		return database{}, nil, errors.Join(err, server.Close())
	}
	drop := func(ctx context.Context) error {
		_, err := server.ExecContext(ctx, "DROP DATABASE "+name)
		return errors.Join(err, server.Close())
	}
	db, err := openPool(url, name)
	if err != nil {
		return database{}, nil, errors.Join(err, drop(context.WithoutCancel(ctx)))
	}
	return database{db, name}, func(ctx context.Context) error { return errors.Join(db.Close(), drop(ctx)) }, nil
}
