package sqlite_test

import (
	"database/sql"
	"database/sql/driver"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	modernc "modernc.org/sqlite"

	"github.com/outmill/outmill/sqlite"
)

// rowsRead counts the calls of the SQL function row_read.
var rowsRead atomic.Int64

func init() {
	modernc.MustRegisterScalarFunction("row_read", 1, func(*modernc.FunctionContext, []driver.Value) (driver.Value, error) {
		rowsRead.Add(1)
		return int64(1), nil
	})
}

func TestStore_NextTopic(t *testing.T) {
	t.Parallel()

	t.Run("the search for the next topic does not read the records of a topic", func(t *testing.T) {
		t.Parallel()
		const each = 10_000
		store := newStore(t)
		_, err := store.DB().ExecContext(t.Context(), `WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ?1 * 6 - 1)
			INSERT INTO outmill_records (id, grp, topic, key, stage, due_at, next_at, created_at, size, message_id, payload)
			SELECT printf('00000000-0000-7000-8000-%012d', i), 'g' || (i % 2), 't' || (i % 3), '', 0, 0, 0, 0, 0, '', x'' FROM n`, each)
		require.NoError(t, err)
		next := store.SQL(sqlite.NextIn(`{p:records} INDEXED BY {p:line} WHERE stage = 0 AND turn IS NULL AND row_read(seq)`))
		before := rowsRead.Load()
		var found [][2]string
		for group, topic := "", ""; ; {
			err := store.DB().QueryRowContext(t.Context(), next, group, topic).Scan(&group, &topic)
			if err != nil {
				require.ErrorIs(t, err, sql.ErrNoRows)
				break
			}
			found = append(found, [2]string{group, topic})
		}
		require.Equal(t, [][2]string{{"g0", "t0"}, {"g0", "t1"}, {"g0", "t2"}, {"g1", "t0"}, {"g1", "t1"}, {"g1", "t2"}}, found)
		require.LessOrEqual(t, rowsRead.Load()-before, int64(20))
		// A comparison of both columns reads what is equal to the last record.
		before = rowsRead.Load()
		require.NoError(t, store.DB().QueryRowContext(t.Context(), store.SQL(`SELECT grp, topic FROM {p:records} INDEXED BY {p:line}
			WHERE stage = 0 AND turn IS NULL AND row_read(seq) AND (grp, topic) > (?1, ?2) ORDER BY grp, topic
			LIMIT 1`), "g0", "t0").Scan(new(string), new(string)))
		require.GreaterOrEqual(t, rowsRead.Load()-before, int64(each))
	})
}
