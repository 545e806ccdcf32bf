package example

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill"
)

// OnPostgres runs a program on PostgreSQL.
var OnPostgres = Engine[Database]{Sample: postgresSample, Open: openDatabase}

const postgresSample = "postgres://user:password@localhost:5432/postgres"

// Database is a schema of the example's own in a PostgreSQL database, so that it
// runs on a server with other databases, any number of times.
type Database struct {
	// URL connects to the database, with Schema as the search path.
	URL string
	// Schema is for the tables of the example and those of the outbox.
	Schema string
}

func openDatabase(ctx context.Context, base string) (Database, func(context.Context) error, error) {
	u, err := url.Parse(base)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		return Database{}, nil, fmt.Errorf("-database is %s: want a URL such as %s", outmill.RedactURL(base), postgresSample)
	}
	db := Database{Schema: UniqueName()}
	query := u.Query()
	query.Set("search_path", db.Schema)
	u.RawQuery = query.Encode()
	db.URL = u.String()
	return db, db.drop, db.execute(ctx, "CREATE SCHEMA "+db.Schema)
}

func (db Database) drop(ctx context.Context) error {
	return db.execute(ctx, "DROP SCHEMA IF EXISTS "+db.Schema+" CASCADE")
}

func (db Database) execute(ctx context.Context, statement string) (err error) {
	conn, err := pgx.Connect(ctx, db.URL)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	_, err = conn.Exec(ctx, statement)
	return err
}
