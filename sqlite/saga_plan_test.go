package sqlite_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/sqlite"
)

// manySagas makes 1,000,000 sagas: half are finished, and one in ten of all is to be deleted.
const manySagas = `
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000),
clock (now) AS (SELECT CAST(unixepoch('subsec') * 1000 AS INTEGER) * 1000)
INSERT INTO outmill_sagas (id, type, correlation, version, state, finished, created_at, updated_at, delete_at)
SELECT printf('00000000-0000-7000-8000-%012d', i), 'order', printf('o%d', i), 1, '{}', i % 2 = 0, now, now - i % 3 * 86400000000,
	CASE WHEN i % 10 = 0 THEN now - 1 WHEN i % 2 = 0 THEN now + 86400000000 END
FROM n, clock`

func TestSagas_Plans(t *testing.T) {
	t.Parallel()
	requireIndexed := func(t *testing.T, store file) {
		t.Helper()
		for _, template := range sqlite.SagaStatements() {
			text := store.SQL(template)
			for _, line := range planOf(t, store.DB(), text) {
				require.NotContains(t, line, "USE TEMP B-TREE", text)
				if strings.Contains(line, "outmill_sagas") {
					require.Regexp(t, `^SEARCH outmill_sagas USING ((COVERING )?INDEX \w+|PRIMARY KEY) \(.+\)`, line, text)
				}
			}
		}
	}
	t.Run("no statement scans the sagas or sorts them in a database that is new", func(t *testing.T) {
		t.Parallel()
		requireIndexed(t, newStore(t))
	})
	t.Run("no statement scans a million sagas or sorts them, and deletions are bounded", func(t *testing.T) {
		t.Parallel()
		testenv.Long(t, "plans of SQLite at a million sagas")
		store := newStore(t)
		for _, fill := range []string{manySagas, "ANALYZE"} {
			_, err := store.DB().ExecContext(t.Context(), fill)
			require.NoError(t, err)
			requireIndexed(t, store)
		}
		n, err := store.DeleteOldSagas(t.Context(), 100)
		require.NoError(t, err)
		require.Equal(t, 100, n)
	})
}
