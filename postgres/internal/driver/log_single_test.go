package driver_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

var buffers = regexp.MustCompile(`Buffers: shared (?:hit=(\d+))?(?: ?read=(\d+))?`)

// blocks is how many blocks a statement of the driver reads, with its functions. What it changes is rolled back.
func (s logged) blocks(t *testing.T, text string, args ...any) (n int) {
	t.Helper()
	_, texts := s.driver.Texts()
	tx, err := s.db.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
	_, err = tx.Exec(t.Context(), texts["settings"], true)
	require.NoError(t, err)
	for range 2 { // the first call of a session reads the catalog
		rows, err := tx.Query(t.Context(), "EXPLAIN (ANALYZE, BUFFERS, TIMING off) "+text, args...)
		require.NoError(t, err)
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		for _, line := range plan {
			if found := buffers.FindStringSubmatch(line); found != nil {
				hit, _ := strconv.Atoi(found[1])
				read, _ := strconv.Atoi(found[2])
				n = hit + read
				break
			}
		}
	}
	return n
}

// Whatever looks for rows by their places or ids searches each: a join in the order of the places would go over the whole line.
func TestLogSingleRows_CostTheSameInALongLog(t *testing.T) {
	t.Parallel()
	s := openLogged(t)
	_, texts := s.driver.Texts()
	fill := func(n int) {
		records := make([]*outmill.Record, n)
		for i := range records {
			records[i] = &outmill.Record{Topic: "orders", Key: fmt.Sprint(i), Payload: make([]byte, 200)}
		}
		require.NoError(t, s.Append(t.Context(), records...))
	}
	fill(100)
	var ids, places string
	require.NoError(t, s.db.QueryRow(t.Context(), `SELECT array_agg(id)::text, array_agg(pos)::text FROM (SELECT id, pos FROM outmill.log
		ORDER BY pos LIMIT 3) AS l`).Scan(&ids, &places))
	const chain, begin, seen = 77, 0, "1:1:"
	statements := []struct {
		name string
		args []any
	}{
		{"log_ids", []any{ids, ids}},
		{"log_find", []any{ids, ids}},
		{"log_content", []any{"orders", places, 3}},
		{"log_places", []any{"orders", fmt.Sprintf("{%d}", chain), fmt.Sprintf("{%d}", begin), []string{seen}, "{true}", []string{places}}},
		{"log_unread", nil},
		{"log_take", nil},
	}
	text := func(name string) string {
		switch name {
		case "log_unread":
			return fmt.Sprintf(`SELECT outmill.log_unread('orders', %d, %d, '%s', '%s')`, chain, begin, seen, places)
		case "log_take":
			return fmt.Sprintf(`SELECT outmill.log_take('orders', %d, %d, '%s', pg_current_snapshot(), 0, 100, '{}', false, '%s',
				NULL, 0, 1, '', '')`, chain, begin, seen, places)
		}
		return texts[name]
	}
	few := map[string]int{}
	for _, of := range statements {
		few[of.name] = s.blocks(t, text(of.name), of.args...)
		require.NotZero(t, few[of.name])
	}
	for range 10 {
		fill(1000)
	}
	for _, of := range statements {
		require.LessOrEqual(t, s.blocks(t, text(of.name), of.args...), few[of.name]+50, "%s: %d blocks with a few rows", of.name, few[of.name])
	}
}

// A dropped group leaves a chain. A search by id asks that chain for leased rows only.
func TestLogChainsThatHaveEnded_AreNotAskedForRowsToRead(t *testing.T) {
	t.Parallel()
	s := openLogged(t)
	_, texts := s.driver.Texts()
	records := make([]*outmill.Record, 2000)
	for i := range records {
		records[i] = &outmill.Record{Topic: "orders"}
	}
	require.NoError(t, s.Append(t.Context(), records...))
	var places string
	require.NoError(t, s.db.QueryRow(t.Context(), `SELECT array_agg(pos)::text FROM outmill.log`).Scan(&places))
	read := func(unread bool) int {
		return s.blocks(t, texts["log_places"], "orders", "{77}", "{0}", []string{"1:1:"}, fmt.Sprintf("{%t}", unread), []string{places})
	}
	require.Greater(t, read(true), len(records))
	require.LessOrEqual(t, read(false), 50)
}
