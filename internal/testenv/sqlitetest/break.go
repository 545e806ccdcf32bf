package sqlitetest

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"
)

// wrong has a value that no store writes, for each column that a claim reads, and that it does not need to find the
// record. A message's own id is never broken, because sentences ask for it.
var wrong = map[string]string{
	"key": "x'6b'", "tenant_id": "x'74'", "created_at": "'yesterday'", "next_at": "'soon'", "expires_at": "'never'",
	"attempts": "'many'", "claims": "1.5", "expiries": "-1", "size": "'large'", "worker": "x'77'",
	"due_at": "'later'", "last_error": "x'65'", "joins": "'none'", "metadata": "'[1]'", "payload": "12",
}

// Breaker is embedded by a storetest.Breaker of a store on SQLite.
type Breaker struct{}

// Columns are those that BreakColumn knows. See storetest.Breaker.
func (Breaker) Columns() (columns []string) {
	for column := range wrong {
		columns = append(columns, column)
	}
	return columns
}

// BreakColumn gives a column of a record a value that no store writes there.
func BreakColumn(t *testing.T, db *sql.DB, id, column string) {
	t.Helper()
	_, err := db.ExecContext(context.WithoutCancel(t.Context()), "UPDATE outmill_records SET "+column+" = "+wrong[column]+" WHERE id = ?", id)
	require.NoError(t, err)
}
