package sqlite_test

import (
	"testing"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/storetest"
)

func (h harness) ReopenFair(topics ...string) outmill.Store {
	config := h.file.config
	config.FairTopics = topics
	return openFile(h.t, h.file.path, config)
}

const byAppend = "the records of a tenant are served in the order of their appends"

// fairEngine has stores that serve turns in all topics.
func fairEngine(atOnce int) storetest.Engine {
	return storetest.Engine{
		New: func(t *testing.T, options storetest.Options) storetest.Harness {
			t.Helper()
			h := harness{t, newConforming(t, options)}
			h.file.config.BusyTimeout = time.Minute
			store := h.ReopenFair("*").(file)
			store.SetAtOnce(atOnce)
			return harness{t, store}
		},
		Unsupported: map[string]string{
			"transactions": oneWriter,
			"claim: the oldest due of a topic is handed out first":                       byAppend,
			"claim: the oldest due of a topic is handed out first, however many are due": byAppend,
		},
	}
}

func TestConformance_Turns(t *testing.T) {
	t.Parallel()
	testenv.Long(t, "the contract with turns in all topics")
	storetest.Run(t, fairEngine(0))
}

func TestStore_TurnsInSteps(t *testing.T) {
	t.Parallel()
	testenv.Long(t, "walks in small steps with turns in all topics")
	storetest.WalkInSteps(t, fairEngine(1))
}
