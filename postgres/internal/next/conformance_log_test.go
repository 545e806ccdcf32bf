package next_test

import (
	"testing"

	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/storetest"
	"github.com/outmill/outmill/storetest/joinstest"
	"github.com/outmill/outmill/storetest/txtest"
)

func TestConformance_Log(t *testing.T) {
	t.Parallel()
	storetest.Run(t, suiteOn(t, connect(t, postgrestest.Database(t), 40, nil), 0, true))
}

func TestConformance_LogJoins(t *testing.T) {
	t.Parallel()
	joinstest.Run(t, suiteOn(t, connect(t, postgrestest.Database(t), 40, nil), 0, true))
}

func TestConformance_LogTransactions(t *testing.T) {
	t.Parallel()
	txtest.Run(t, suiteOn(t, connect(t, postgrestest.Database(t), 40, nil), 0, true))
}
