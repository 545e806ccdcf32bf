package sqlite_test

import (
	"database/sql"
	"database/sql/driver"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	modernc "modernc.org/sqlite"

	"github.com/outmill/outmill/sqlite"
)

// rowsRead counts the calls of the SQL function row_read(name, seq), by name.
var rowsRead sync.Map

func init() {
	modernc.MustRegisterScalarFunction("row_read", 2, func(_ *modernc.FunctionContext, args []driver.Value) (driver.Value, error) {
		readOf(args[0].(string)).Add(1)
		return int64(1), nil
	})
}

func readOf(name string) *atomic.Int64 {
	count, _ := rowsRead.LoadOrStore(name, new(atomic.Int64))
	return count.(*atomic.Int64)
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
		next := store.SQL(sqlite.NextIn(`{p:records} INDEXED BY {p:line} WHERE stage = 0 AND turn IS NULL AND row_read('next', seq)`))
		before := readOf("next").Load()
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
		require.LessOrEqual(t, readOf("next").Load()-before, int64(20))
		// A comparison of both columns reads what is equal to the last record.
		before = readOf("next").Load()
		require.NoError(t, store.DB().QueryRowContext(t.Context(), store.SQL(`SELECT grp, topic FROM {p:records} INDEXED BY {p:line}
			WHERE stage = 0 AND turn IS NULL AND row_read('next', seq) AND (grp, topic) > (?1, ?2) ORDER BY grp, topic
			LIMIT 1`), "g0", "t0").Scan(new(string), new(string)))
		require.GreaterOrEqual(t, readOf("next").Load()-before, int64(each))
	})
}

func TestStore_OldestDue(t *testing.T) {
	t.Parallel()

	t.Run("the search for the record that has been due longest stops at the first that was due at its append", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		// The first records of "retried" became due after their append, as a retry does; those of
		// "waiting" have always been due.
		_, err := store.DB().ExecContext(t.Context(), `WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 999)
			INSERT INTO outmill_records (id, grp, topic, key, stage, due_at, next_at, created_at, size, message_id, payload)
			SELECT printf('00000000-0000-7000-8000-%012d', i), 'g', iif(i % 2, 'retried', 'waiting'), '', 0, 0,
				iif(i % 2 AND i < 7, 5000 - i, 0), 1000 + i, 0, '', x'' FROM n`)
		require.NoError(t, err)
		search := store.SQL(sqlite.FirstDue(`{p:records} INDEXED BY {p:line} WHERE grp IS ?1 AND topic = ?2 AND stage = 0 AND turn IS NULL
			AND row_read('due' || topic, seq)`))
		for topic, want := range map[string]struct {
			due  int64
			rows int64
		}{"waiting": {1000, 2}, "retried": {1007, 8}, "none": {0, 0}} {
			before := readOf("due" + topic).Load()
			var due sql.NullInt64
			require.NoError(t, store.DB().QueryRowContext(t.Context(), search, "g", topic).Scan(&due))
			require.Equal(t, want.due, due.Int64, topic)
			require.LessOrEqual(t, readOf("due"+topic).Load()-before, want.rows, topic)
		}
	})

	t.Run("the search reads few records where all were retried", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		_, err := store.DB().ExecContext(t.Context(), `WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 9999)
			INSERT INTO outmill_records (id, grp, topic, key, stage, due_at, next_at, created_at, size, message_id, payload)
			SELECT printf('00000000-0000-7000-8000-%012d', i), 'g', 't', '', 0, 0, 20000 - i, i, 0, '', x'' FROM n`)
		require.NoError(t, err)
		search := store.SQL(sqlite.FirstDue(`{p:records} INDEXED BY {p:line} WHERE grp IS ?1 AND topic = ?2 AND stage = 0 AND turn IS NULL
			AND row_read('retried', seq)`))
		before := readOf("retried").Load()
		var due int64
		require.NoError(t, store.DB().QueryRowContext(t.Context(), search, "g", "t").Scan(&due))
		require.EqualValues(t, 20000-99, due)
		require.LessOrEqual(t, readOf("retried").Load()-before, int64(200))
	})
}
