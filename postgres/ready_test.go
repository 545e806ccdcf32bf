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

// kindOfSchema is the part of a Config that the schema depends on.
type kindOfSchema struct {
	name string
	rows bool
}

// templates has a postgrestest.Template for each kind of schema.
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
	kind := kindOfSchema{config.Schema, config.Lane == postgres.LaneRows}
	template, _ := templates.LoadOrStore(kind, &postgrestest.Template{Fill: func(ctx context.Context, databaseURL string) error {
		db, err := pgxpool.New(ctx, databaseURL)
		if err != nil {
			return err
		}
		defer db.Close()
		store, err := postgres.New(db, postgres.Config{Schema: config.Schema, Lane: config.Lane, NotifyInterval: -1}, nil)
		if err != nil {
			return err
		}
		defer func() { _ = store.Close() }()
		return store.Ensure(ctx)
	}})
	return template.(*postgrestest.Template).Database(t)
}

// tapePool returns a pool on a database of the test with the schema of a tape.
func tapePool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	return readyPool(t, postgres.Config{Schema: tapeSchema, Lane: postgres.LaneLog})
}
