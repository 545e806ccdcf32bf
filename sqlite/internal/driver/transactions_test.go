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
	suite := suiteOf(0)
	suite.Unsupported = map[string]string{
		"inbox: a transaction waits for the note of another one for a bounded time": "SQLite has one writer at a time",
	}
	txtest.Run(t, suite)
}

func (s store) DB() *sql.DB { return s.driver.DB() }

func (h harness) EndTx(s outmill.Store) []storetest.TxEnd {
	return sqlitetest.EndTx[storetest.TxEnd](h.t, s.(store))
}
