package postgres_test

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres"
)

// templates has a postgrestest.Template for each name of a schema.
var templates sync.Map

// readyPool returns a pool on a database of the test with the schema that the store of the
// config would make.
func readyPool(t *testing.T, config postgres.Config) *pgxpool.Pool {
	t.Helper()
	return connect(t, readyDatabase(t, config))
}

func readyDatabase(t *testing.T, config postgres.Config) string {
	t.Helper()
	require.Empty(t, config.TablePrefix, "templates have no prefix")
	template, _ := templates.LoadOrStore(config.Schema, &postgrestest.Template{Fill: func(ctx context.Context, databaseURL string) error {
		db, err := pgxpool.New(ctx, databaseURL)
		if err != nil {
			return err
		}
		defer db.Close()
		store, err := postgres.New(db, postgres.Config{Schema: config.Schema, NotifyInterval: -1}, nil)
		if err != nil {
			return err
		}
		defer func() { _ = store.Close() }()
		return store.Ensure(ctx)
	}})
	return template.(*postgrestest.Template).Database(t)
}
