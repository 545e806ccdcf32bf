package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/sqlite"
)

func TestStore_Schema(t *testing.T) {
	t.Parallel()

	t.Run("ten processes that open and ensure a new file at once all succeed", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "orders.db")
		var starts errgroup.Group
		stores := make(chan *sqlite.Store, 10)
		for range 10 {
			starts.Go(func() error {
				store, err := sqlite.Open(t.Context(), path, sqlite.Config{BusyTimeout: time.Minute}, nil)
				if err != nil {
					return err
				}
				stores <- store
				return store.Ensure(t.Context())
			})
		}
		require.NoError(t, starts.Wait())
		close(stores)
		for store := range stores {
			require.NoError(t, store.Append(t.Context(), rec("m", "")))
			require.NoError(t, store.Close())
		}
	})

	t.Run("a missing schema is named together with the remedy", func(t *testing.T) {
		t.Parallel()
		store := openFile(t, filepath.Join(t.TempDir(), "orders.db"), sqlite.Config{})
		requireMissing := func(err error) {
			t.Helper()
			require.ErrorIs(t, err, outmill.ErrSchemaMissing)
			require.ErrorContains(t, err, "store.Ensure(ctx)")
			require.ErrorContains(t, err, "outmill schema ensure <url>")
		}
		requireMissing(store.Append(t.Context(), rec("m1", "")))
		t.Run("in a caller's transaction, which goes on", func(t *testing.T) {
			tx, err := store.DB().BeginTx(t.Context(), nil)
			require.NoError(t, err)
			requireMissing(store.Append(store.WithTx(t.Context(), tx), rec("m1", "")))
			_, err = tx.ExecContext(t.Context(), `CREATE TABLE orders (id)`)
			require.NoError(t, err)
			require.NoError(t, tx.Commit())
		})
		t.Run("and a program that was started too early works once it is there", func(t *testing.T) {
			require.NoError(t, store.Ensure(t.Context()))
			require.NoError(t, store.Append(t.Context(), rec("m1", "")))
		})
	})

	t.Run("a schema of another version is refused", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct {
			name    string
			version string
			want    error
		}{
			{"older", "0 - 1", outmill.ErrSchemaOutdated},
			{"newer", "version + 1", outmill.ErrSchemaNewer},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				store := newStore(t)
				_, err := store.DB().ExecContext(t.Context(), `UPDATE outmill_meta SET version = `+c.version)
				require.NoError(t, err)
				require.ErrorIs(t, store.Append(t.Context(), rec("m1", "")), c.want)
				_, err = store.Stats(t.Context(), 0)
				require.ErrorIs(t, err, c.want)
				tx, err := store.DB().BeginTx(t.Context(), nil)
				require.NoError(t, err)
				require.ErrorIs(t, store.Append(store.WithTx(t.Context(), tx), rec("m1", "")), c.want)
				require.NoError(t, tx.Rollback())
			})
		}
	})

	t.Run("Statements make the schema that Ensure makes", func(t *testing.T) {
		t.Parallel()
		ensured := newStore(t)
		applied := openFile(t, filepath.Join(t.TempDir(), "orders.db"), sqlite.Config{})
		for _, statement := range applied.Statements() {
			_, err := applied.DB().ExecContext(t.Context(), statement)
			require.NoError(t, err, statement)
		}
		require.Equal(t, schemaOf(t, ensured.DB()), schemaOf(t, applied.DB()))
		require.NoError(t, applied.Append(t.Context(), rec("m1", "")))
		require.NoError(t, applied.Ensure(t.Context()))
	})

	t.Run("people can read the records", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		appendAll(t, store, &outmill.Record{Topic: "orders", MessageID: "m1", Payload: []byte("text"), Delay: time.Hour})
		var status, stage, created, payload string
		require.NoError(t, store.DB().QueryRowContext(t.Context(), `SELECT status, stage, created_at, payload FROM outmill_readable`).
			Scan(&status, &stage, &created, &payload))
		require.Equal(t, []string{"pending", "delayed", "text"}, []string{status, stage, payload})
		at, err := time.Parse(time.RFC3339, created)
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), at, time.Minute)
	})
}

func schemaOf(t *testing.T, db *sql.DB) map[string]string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT name, coalesce(sql, '') FROM sqlite_master`)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	schema := map[string]string{}
	for rows.Next() {
		var name, text string
		require.NoError(t, rows.Scan(&name, &text))
		schema[name] = text
	}
	require.NoError(t, rows.Err())
	return schema
}
