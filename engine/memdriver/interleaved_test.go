package memdriver_test

import (
	"math/rand/v2"
	"testing"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/engine/memdriver"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest"
)

// interleaved is a harness whose transactions run at the same time.
type interleaved struct {
	harness
	world *memdriver.World
	// serial is a store on the same database, whose transactions run one after the other.
	serial store
}

func (h interleaved) open(fair ...string) store {
	config := engine.Config{Name: "memory", Retain: h.options.Retain, DedupWindow: h.options.DedupWindow, AtOnce: h.atOnce, FairTopics: fair}
	db := h.store.db
	s := store{engine.New(memdriver.Interleaved{Driver: memdriver.Driver{Database: db}, World: h.world}, config), db}
	h.t.Cleanup(func() { _ = s.Close() })
	return s
}

func (h interleaved) Reopen() outmill.Store { return h.open() }

func (h interleaved) ReopenFair(topics ...string) outmill.Store { return h.open(topics...) }

func newInterleaved(t *testing.T, o storetest.Options, atOnce storekit.BatchSize) interleaved {
	h := interleaved{harness: newHarness(t, o, atOnce)}
	h.serial = h.store
	h.world = memdriver.NewWorld(h.store.db)
	h.store = h.open()
	return h
}

func suiteInterleaved(atOnce storekit.BatchSize, again func() bool) storetest.Engine {
	e := suiteOf(atOnce, nil)
	e.New = func(t *testing.T, options storetest.Options) storetest.Harness {
		h := newInterleaved(t, options, atOnce)
		h.world.Again = again
		t.Cleanup(func() {
			if h.world.Deadlocks > 0 {
				t.Logf("%d deadlocks in %d transactions", h.world.Deadlocks, h.world.Runs)
			}
		})
		return h
	}
	return e
}

// again has every tenth transaction run twice.
func again() bool { return rand.IntN(10) == 0 }

// A store does what it promises although its transactions run at the same time, and some run twice.
func TestConformance_Interleaved(t *testing.T) {
	storetest.Run(t, suiteInterleaved(0, again))
}

func TestConformance_InterleavedWalk(t *testing.T) {
	storetest.WalkInSteps(t, suiteInterleaved(2, again))
}
