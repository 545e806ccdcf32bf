// Package sqlitetest has what tests of several packages do with SQLite.
package sqlitetest

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Ender is a store whose transactions end.
type Ender interface {
	DB() *sql.DB
	TxOf(ctx context.Context) (any, error)
}

const (
	table = `CREATE TABLE IF NOT EXISTS ended (n INTEGER PRIMARY KEY, content BLOB)`

	// plain has no trigger: SQLite would roll back only the statement that finds the database full.
	plain = `CREATE TABLE IF NOT EXISTS ended_full (content BLOB)`

	trigger = `CREATE TRIGGER IF NOT EXISTS ended_rolls_back BEFORE INSERT ON ended WHEN new.n = -1
BEGIN SELECT RAISE(ROLLBACK, 'refused by a trigger'); END`

	// long runs for a second or more. It has an end: its context interrupts it once at most, and not if
	// SQLite has not begun it by then.
	long = `INSERT INTO ended_full WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers LIMIT 2000000)
		SELECT NULL FROM numbers`
)

// Way is storetest.TxEnd, which this package cannot import.
type Way interface {
	~struct {
		Name    string
		Commits bool
		End     func(ctx context.Context)
	}
}

// EndTx returns the ways in which SQLite ends a transaction: see storetest.TxEnder.
func EndTx[W Way](t *testing.T, store Ender) []W {
	t.Helper()
	for _, statement := range []string{table, plain, trigger} {
		_, err := store.DB().ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	fails := func(tx *sql.Tx, statement string) {
		_, err := tx.ExecContext(t.Context(), statement)
		require.Error(t, err, statement)
	}
	runs := func(tx *sql.Tx, statement string) {
		_, err := tx.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	way := func(name string, commits bool, end func(tx *sql.Tx)) W {
		return W{Name: name, Commits: commits, End: func(ctx context.Context) {
			carried, err := store.TxOf(ctx)
			require.NoError(t, err)
			tx, ok := carried.(*sql.Tx)
			require.True(t, ok, "the context carries a %T", carried)
			end(tx)
			require.True(t, hasEnded(t, tx), name)
		}}
	}
	return []W{
		way("a ROLLBACK as a statement", false, func(tx *sql.Tx) { runs(tx, "ROLLBACK") }),
		way("a COMMIT as a statement", true, func(tx *sql.Tx) { runs(tx, "COMMIT") }),
		way("a statement that its context interrupts", false, func(tx *sql.Tx) { interrupt(t, tx) }),
		way("ON CONFLICT ROLLBACK", false, func(tx *sql.Tx) {
			runs(tx, "INSERT INTO ended VALUES (0, NULL)")
			fails(tx, "INSERT OR ROLLBACK INTO ended VALUES (0, NULL)")
		}),
		way("RAISE(ROLLBACK) of a trigger", false, func(tx *sql.Tx) { fails(tx, "INSERT INTO ended VALUES (-1, NULL)") }),
		way("a full database", false, func(tx *sql.Tx) {
			pages := 0
			require.NoError(t, tx.QueryRowContext(t.Context(), "PRAGMA page_count").Scan(&pages))
			runs(tx, fmt.Sprintf("PRAGMA max_page_count = %d", pages))
			fails(tx, "INSERT INTO ended_full VALUES (zeroblob(1000000))")
			runs(tx, "PRAGMA max_page_count = 1000000000")
		}),
	}
}

// interrupt cancels a long statement until SQLite has rolled back. A context that ends before the
// statement begins leaves the transaction open, and one that ends just then may interrupt nothing.
func interrupt(t *testing.T, tx *sql.Tx) {
	t.Helper()
	for wait := time.Millisecond; !hasEnded(t, tx); wait *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		_, err := tx.ExecContext(ctx, long)
		cancel()
		if err == nil {
			t.Logf("nothing has interrupted a statement after %s", wait)
		}
	}
}

// hasEnded reports whether SQLite would begin another transaction.
func hasEnded(t *testing.T, tx *sql.Tx) bool {
	t.Helper()
	if _, err := tx.ExecContext(t.Context(), "BEGIN"); err != nil {
		require.ErrorContains(t, err, "within a transaction")
		return false
	}
	_, err := tx.ExecContext(t.Context(), "ROLLBACK")
	require.NoError(t, err)
	return true
}
