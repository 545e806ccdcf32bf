package driver_test

import (
	"database/sql"
	"testing"

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
