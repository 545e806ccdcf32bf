package main

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"

	"github.com/outmill/outmill/tenants"
)

// catalogue is the database that knows the tenants and their databases.
type catalogue struct {
	db  *sql.DB
	dir string
}

func openCatalogue(ctx context.Context, dir string) (*catalogue, error) {
	db, err := sql.Open("sqlite", filepath.Join(dir, "catalogue.db"))
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, `CREATE TABLE tenants (key TEXT PRIMARY KEY, url TEXT NOT NULL)`); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &catalogue{db, dir}, nil
}

func (c *catalogue) add(ctx context.Context, tenant string) error {
	_, err := c.db.ExecContext(ctx, `INSERT INTO tenants VALUES (?, ?)`, tenant, "sqlite:"+filepath.Join(c.dir, tenant+".db"))
	return err
}

// discovery is the Discovery of the set of tenants.
func (c *catalogue) discovery() tenants.Discovery {
	return tenants.Query{DB: c.db, SQL: `SELECT key, url FROM tenants`}
}

func (c *catalogue) close() error { return c.db.Close() }
