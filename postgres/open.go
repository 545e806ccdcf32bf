package postgres

import (
	"context"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/outmill/outmill/postgres/internal/conns"
	"github.com/outmill/outmill/storekit"
)

// Open opens a pool of connections and returns a store on it. Close closes both. Open does not
// create the schema, unless Config.EnsureSchema is set: see Ensure. A nil logger logs nothing.
//
// The database is a string that pgxpool.ParseConfig takes: a URL
// (postgres://user:password@host:5432/database?pool_max_conns=10) or key=value pairs. If the context has a
// storekit.ConnectionBudget, as that of tenants.Config.Open can have, the pool and the connection that listens take
// their connections from it, and the pool keeps no minimum of idle ones.
func Open(ctx context.Context, database string, config Config, logger watermill.LoggerAdapter) (*Store, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	parsed, err := pgxpool.ParseConfig(database)
	if err != nil {
		return nil, storekit.InvalidConfig("postgres.Open: %w", err)
	}
	if config.Name == "" {
		config.Name = "postgres:" + parsed.ConnConfig.Database
		if config.Schema != "" && config.Schema != DefaultSchema {
			config.Name += "/" + config.Schema
		}
	}
	opened, err := conns.Open(ctx, parsed)
	if err != nil {
		return nil, fmt.Errorf("outmill/postgres: open: %w", err)
	}
	store, err := newStore(opened, config, logger)
	if err == nil {
		err = opened.Pgx().Ping(ctx)
	}
	if err == nil && config.EnsureSchema {
		err = store.Ensure(ctx)
	}
	if err != nil {
		opened.Drop()
		return nil, fmt.Errorf("outmill/postgres: open: %w", err)
	}
	return store, nil
}
