package driver

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/postgres/internal/driver/internal/segments"
)

var blocks = regexp.MustCompile(`Buffers: shared (?:hit=(\d+))?(?: ?read=(\d+))?`)

// blocksOf is how many blocks a statement reads with the settings of the driver, with all that its functions read.
func (w *logWorld) blocksOf(sql string, args ...any) (n int) {
	w.Helper()
	tx := w.begin()
	defer func() { _ = tx.Rollback(context.WithoutCancel(w.ctx)) }()
	_, err := tx.Exec(w.ctx, w.names.text("settings", false), true)
	require.NoError(w, err)
	// The first call of a session reads the catalog.
	for range 2 {
		rows, err := tx.Query(w.ctx, "EXPLAIN (ANALYZE, BUFFERS, TIMING off) "+w.names.in(sql), args...)
		require.NoError(w, err)
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(w, err)
		for _, line := range plan {
			if found := blocks.FindStringSubmatch(line); found != nil {
				hit, _ := strconv.Atoi(found[1])
				read, _ := strconv.Atoi(found[2])
				n = hit + read
				break
			}
		}
	}
	return n
}

// pageBlocks are the blocks that a page of some rows reads.
func (w *logWorld) pageBlocks(group string, want int) int {
	w.Helper()
	line := w.lineOf(group)
	return w.blocksOf(`SELECT * FROM {p:log_page}($1::text, $2::bigint, $3::bigint, nullif($4::text, '')::pg_snapshot, $5::bigint)`,
		line.args(want)...)
}

// numbered are texts of one key.
func numbered(key string, from, n int) (texts []string) {
	for i := range n {
		texts = append(texts, fmt.Sprint(key, from+i))
	}
	return texts
}

func TestLogSegments(t *testing.T) {
	t.Parallel()
	db := newLogDB(t)
	t.Run("a page reads no more however many rows are behind the cursor", func(t *testing.T) {
		w := db.world(t)
		w.register("a", true)
		behind := func(n int) {
			for i := range 3 { // one to each segment
				w.append(numbered("a", i*n, n)...)
			}
			tx := w.begin()
			_, got := w.takeOf(tx, w.page(tx, w.lineOf("a"), 3*n), nil)
			require.Len(t, got, 3*n)
			w.commit(tx)
		}
		// Behind a transaction that was open at a claim the next one searches, also if it is one of another program. So only the cheapest
		// of some pages counts.
		blocks := func() int {
			w.append("c")
			defer w.requireClaims("a", "c")
			return w.pageBlocks("a", 30)
		}
		behind(100)
		few := math.MaxInt
		for range 5 {
			few = min(few, blocks())
		}
		require.NotZero(t, few)
		behind(10_000)
		// The indexes are a level deeper. The rows behind the cursor have some 160 blocks in them, and 1,000 in the tables.
		most := few + 50
		for end := time.Now().Add(time.Minute); ; {
			many := blocks()
			if many <= most {
				break
			}
			require.True(t, time.Now().Before(end), "%d blocks, and %d with a few rows", many, few)
		}
	})
	t.Run("a page reads no more however many rows wait", func(t *testing.T) {
		w := db.world(t)
		w.register("a", true)
		blocks := func(waiting int) int {
			for range segments.Count {
				w.append(numbered("a", 0, waiting)...)
			}
			return w.pageBlocks("a", 30)
		}
		few := blocks(50)
		require.NotZero(t, few)
		require.LessOrEqual(t, blocks(5000), few+50, "%d blocks with a few rows", few)
	})
	t.Run("rows of all segments come in the order of their places", func(t *testing.T) {
		w := db.world(t)
		w.register("a", true)
		want := numbered("k", 0, 20)
		for _, text := range want {
			w.append(text)
		}
		for n := range segments.Count {
			var rows int
			sql := w.names.in(fmt.Sprintf("SELECT count(*) FROM {p:log_%d} WHERE topic = $1", n))
			require.NoError(t, w.pool.QueryRow(w.ctx, sql, w.line.Name()).Scan(&rows))
			require.NotZero(t, rows, n)
		}
		w.requireClaims("a", want...)
	})
	t.Run("the table of all segments takes no row", func(t *testing.T) {
		w := db.world(t)
		_, err := w.pool.Exec(w.ctx, w.names.in("INSERT INTO {p:log} (created_at, id, topic) VALUES (0, gen_random_uuid(), $1)"), w.line.Name())
		require.ErrorContains(t, err, "violates check constraint")
	})
}
