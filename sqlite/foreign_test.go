package sqlite_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/sqlite"
)

func TestStore_EnsureForeign(t *testing.T) {
	t.Parallel()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "app.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	_, err = db.ExecContext(t.Context(), `CREATE TABLE OUTMILL_Records (id INTEGER)`)
	require.NoError(t, err)

	store, err := sqlite.New(db, sqlite.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	err = store.Ensure(t.Context())
	require.ErrorIs(t, err, outmill.ErrSchemaForeign)
	require.ErrorContains(t, err, "the table OUTMILL_Records exists")
	require.ErrorContains(t, err, "table_prefix")
	require.Len(t, schemaOf(t, db), 1, "something was written")

	other, err := sqlite.New(db, sqlite.Config{TablePrefix: "mill_"}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, other.Close()) })
	require.NoError(t, other.Ensure(t.Context()))
}
