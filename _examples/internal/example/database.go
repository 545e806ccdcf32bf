package example

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill"
)

const dropWithin = 15 * time.Second

// Database is a schema of the example's own in a PostgreSQL database, so that it
// runs on a server with other databases, any number of times.
type Database struct {
	// URL connects to the database, with Schema as the search path.
	URL string
	// Schema is for the tables of the example and those of the outbox.
	Schema string
}

func newDatabase(ctx context.Context, base string) (Database, error) {
	u, err := url.Parse(base)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		return Database{}, fmt.Errorf("-database is %s: want a URL such as postgres://user:password@localhost:5432/postgres", outmill.RedactURL(base))
	}
	db := Database{Schema: "outmill_example_" + strings.ReplaceAll(outmill.NewWorkItemID().String(), "-", "")}
	query := u.Query()
	query.Set("search_path", db.Schema)
	u.RawQuery = query.Encode()
	db.URL = u.String()
	return db, db.execute(ctx, "CREATE SCHEMA "+db.Schema)
}

func (db Database) drop(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dropWithin)
	defer cancel()
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
