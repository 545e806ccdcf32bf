package driver_test

import (
	"testing"
	"time"

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
}
