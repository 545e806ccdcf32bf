package next_test

import (
	"testing"

	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/storetest"
	"github.com/outmill/outmill/storetest/joinstest"
	"github.com/outmill/outmill/storetest/txtest"
)

// notYet are the sentences that the store does not keep with its log, by the reason.
var notYet = map[string][]string{
	"a chain that waits has no end, so what comes while a group holds waits with the rest until a group takes": {
		"holding: a message that is appended after a registration that holds reaches its group",
	},
}

func TestConformance_Log(t *testing.T) {
	t.Parallel()
	e := suiteOn(t, connect(t, postgrestest.Database(t), 40, nil), 0, true)
	e.Unsupported = map[string]string{}
	for reason, sentences := range notYet {
		for _, sentence := range sentences {
			e.Unsupported[sentence] = reason
		}
	}
	storetest.Run(t, e)
}

func TestConformance_LogJoins(t *testing.T) {
	t.Parallel()
	joinstest.Run(t, suiteOn(t, connect(t, postgrestest.Database(t), 40, nil), 0, true))
}

func TestConformance_LogTransactions(t *testing.T) {
	t.Parallel()
	txtest.Run(t, suiteOn(t, connect(t, postgrestest.Database(t), 40, nil), 0, true))
}
