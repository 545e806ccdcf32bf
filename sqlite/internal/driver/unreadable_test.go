package driver_test

import (
	"context"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

// wrong has a value that no store writes, for each column that a claim reads, and that it does not need to find the
// record. A message's own id is never broken, because sentences ask for it.
var wrong = map[string]string{
	"key": "x'6b'", "tenant_id": "x'74'", "created_at": "'yesterday'", "next_at": "'soon'", "expires_at": "'never'",
	"attempts": "'many'", "claims": "1.5", "expiries": "-1", "size": "'large'", "worker": "x'77'",
	"due_at": "'later'", "last_error": "x'65'", "joins": "'none'", "metadata": "'[1]'", "payload": "12",
}

// Columns are those that Break knows. See storetest.Breaker.
func (harness) Columns() (columns []string) {
	for column := range wrong {
		columns = append(columns, column)
	}
	return columns
}

func (h harness) Break(s outmill.Store, id outmill.WorkItemID, column string) {
	_, err := s.(store).DB().ExecContext(context.WithoutCancel(h.t.Context()),
		"UPDATE outmill_records SET "+column+" = "+wrong[column]+" WHERE id = ?", id.String())
	require.NoError(h.t, err)
}
