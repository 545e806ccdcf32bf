package driver_test

import (
	"context"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres/internal/driver"
)

func TestDriver_Schema(t *testing.T) {
	t.Parallel()

	t.Run("the comments of the schema stay comments, whatever its name has", func(t *testing.T) {
		t.Parallel()
		db := connect(t, postgrestest.Database(t), 2, nil)
		for _, name := range []string{"two\nlines", "two\rlines", "\"quoted\"\n;"} {
			d := driver.New(driver.PoolOf(db), driver.Config{Name: "postgres", Schema: name, Upkeep: busy})
			store := opened{engine.New(d, engine.Config{}), d, db, name}
			require.NoError(t, store.Ensure(t.Context()))
			require.NoError(t, store.Append(t.Context(), made("orders", "x", 1)...))
			require.NoError(t, store.Close())
		}
	})

	t.Run("the tables of a version before the first release are refused", func(t *testing.T) {
		t.Parallel()
		db := connect(t, postgrestest.Database(t), 2, nil)
		execute(t, db, "CREATE SCHEMA outmill")
		execute(t, db, "CREATE TABLE outmill.meta (only_row boolean PRIMARY KEY, version integer, compatible integer, generation bigint)")
		execute(t, db, "INSERT INTO outmill.meta VALUES (true, 2, 1, 0)")
		store := storeOn(t, db)
		require.ErrorIs(t, store.Ensure(t.Context()), outmill.ErrSchemaForeign)
		require.ErrorContains(t, store.Ensure(t.Context()), `"outmill"."meta"`)
		for name, call := range map[string]func() error{
			"append":   func() error { return store.Append(t.Context(), made("orders", "x", 1)...) },
			"register": func() error { return store.RegisterGroup(t.Context(), outmill.Registration{Group: "g"}) },
			"stats":    func() error { _, err := store.Stats(t.Context(), 0); return err },
			"list":     func() error { _, err := store.List(t.Context(), outmill.ListQuery{}); return err },
			"groups":   func() error { _, err := store.Groups(t.Context()); return err },
			"claim": func() error {
				_, err := store.Claim(t.Context(), outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Group: "g", Limit: 1, Lease: time.Minute})
				return err
			},
		} {
			require.ErrorIs(t, call(), outmill.ErrSchemaForeign, name)
		}
	})

	t.Run("an upgrade beside a transaction that stays open waits longer each time, and ends with an error that names it", func(t *testing.T) {
		t.Parallel()
		url := postgrestest.Database(t)
		db := connect(t, url, 2, func(c *pgxpool.Config) { c.ConnConfig.Tracer = tap{} })
		d := driver.New(driver.PoolOf(db), driver.Config{Name: "postgres", Schema: "outmill", UpgradeWithin: time.Second})
		require.NoError(t, d.Ensure(t.Context()))
		other := connect(t, url, 1, inSession("application_name", "forgotten"))
		tx, err := other.Begin(t.Context())
		require.NoError(t, err)
		defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
		_, err = tx.Exec(t.Context(), "SELECT 1 FROM outmill.meta")
		require.NoError(t, err)
		files := fstest.MapFS{"schema/0002_later.sql": &fstest.MapFile{
			Data: []byte("ALTER TABLE {p:meta} ADD COLUMN later text;\nUPDATE {p:meta} SET version = 2;\n"),
		}}
		first, err := fs.ReadFile(driver.SchemaFiles(), "schema/0001_tables.sql")
		require.NoError(t, err)
		files["schema/0001_tables.sql"] = &fstest.MapFile{Data: first}

		ctx, sent := tapped(t.Context())
		err = d.EnsureFrom(ctx, files)
		require.ErrorIs(t, err, outmill.ErrSchemaBusy)
		require.ErrorContains(t, err, "(forgotten)")
		var waits []string
		for _, trip := range sent.list() {
			if wait, isText := trip[len(trip)-1].(string); isText && strings.HasSuffix(wait, "ms") {
				waits = append(waits, wait)
			}
		}
		require.GreaterOrEqual(t, len(waits), 2)
		require.Equal(t, []string{"50ms", "100ms"}, waits[:2])
		require.Equal(t, 1, valueOf[int](t, db, "SELECT version FROM outmill.meta"))
		require.NoError(t, tx.Rollback(t.Context()))
		require.NoError(t, d.EnsureFrom(t.Context(), files))
		require.Equal(t, 2, valueOf[int](t, db, "SELECT version FROM outmill.meta"))
	})
}
