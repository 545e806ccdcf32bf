package driver_test

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/sqlitetest"
	"github.com/outmill/outmill/storetest"
	"github.com/outmill/outmill/storetest/txtest"
)

func TestConformance_Transactions(t *testing.T) {
	t.Parallel()
	const oneWriter = "SQLite has one writer at a time"
	suite := suiteOf(0)
	suite.Unsupported = map[string]string{
		"inbox: a transaction waits for the note of another one for a bounded time":                                oneWriter,
		"notes: a message whose handler is stopped is handled once, also after something was done with its record": oneWriter,
		"notes: an open transaction with a note stalls neither the lease of its record nor claims":                 oneWriter,
	}
	txtest.Run(t, suite)
}

func (s store) DB() *sql.DB { return s.driver.DB() }

func (h harness) EndTx(s outmill.Store) []storetest.TxEnd {
	return sqlitetest.EndTx[storetest.TxEnd](h.t, s.(store))
}

// GuardSagas makes an index on the entries of one type of sagas. Their keys begin with the length of the type and the type.
func (h harness) GuardSagas(s outmill.Store, kind, field string) {
	const index = `CREATE UNIQUE INDEX mine ON outmill_entries (json_extract(value, '$.State.%s'))
WHERE kind = 'saga' AND substr(key, 1, %d) = '%s'`
	prefix := fmt.Sprintf("%d:%s", len(kind), kind)
	_, err := s.(store).DB().ExecContext(h.t.Context(), fmt.Sprintf(index, field, len(prefix), prefix))
	require.NoError(h.t, err)
}
