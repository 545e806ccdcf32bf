package mongo_test

import (
	"testing"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/storetest"
)

func (h harness) ReopenFair(topics ...string) outmill.Store {
	c := h.store
	c.config.FairTopics = topics
	store := conforming{newStore(h.t, c.Client(), c.config), c.db, c.config}
	mongo.SetTurn(store.Store, patience)
	return store
}

const byAppend = "the records of a tenant are served in the order of their appends"

// fairEngine has stores that serve turns in all topics.
func fairEngine(t *testing.T) storetest.Engine {
	t.Helper()
	whole := engine(mongotest.Database(t))
	unsupported := map[string]string{}
	for _, section := range []string{
		"append", "limits", "transactions", "groups", "worker names", "registrations", "dedup", "round trips", "inspect", "find",
		"edit", "dead letters", "audit", "wake", "schema", "calls", "stress",
	} {
		unsupported[section] = "it has little to do with claims, and stores without the setting are tested by it"
	}
	for sentence, reason := range map[string]string{
		"clock: no call sends the time of its process":                               "a claim sends the time back that the server has told",
		"claim: the oldest due of a topic is handed out first":                       byAppend,
		"claim: the oldest due of a topic is handed out first, however many are due": byAppend,
	} {
		unsupported[sentence] = reason
	}
	return storetest.Engine{
		New: func(t *testing.T, options storetest.Options) storetest.Harness {
			h := whole.New(t, options).(harness)
			h.store = h.ReopenFair("*").(conforming)
			return h
		},
		Unsupported: unsupported,
	}
}

func TestConformanceInTurns_Variant(t *testing.T) {
	t.Parallel()
	testenv.Unraced(t, "the contract with turns in all topics")
	storetest.Run(t, fairEngine(t))
}

func TestStoreTurnsInSteps_Variant(t *testing.T) {
	t.Parallel()
	testenv.Unraced(t, "walks in small steps with turns in all topics")
	fair := fairEngine(t)
	storetest.WalkInSteps(t, storetest.Engine{
		New: func(t *testing.T, options storetest.Options) storetest.Harness {
			h := inSteps{fair.New(t, options).(harness)}
			setSteps(h.store)
			return h
		},
	})
}
