//go:build outmill_next_open

package next_test

import (
	"testing"

	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/storetest"
	"github.com/outmill/outmill/storetest/joinstest"
	"github.com/outmill/outmill/storetest/txtest"
)

// These have passed on a busy machine, but for the sentences that docs/mongodb-next.md names. They are here, and not in the tests that
// always run, because they take minutes.

func TestConformance_Open(t *testing.T) {
	t.Parallel()
	storetest.Run(t, suiteOn(t, 0))
}

func TestConformance_Joins(t *testing.T) {
	t.Parallel()
	joinstest.Run(t, suiteOn(t, 0))
}

func TestConformance_Transactions(t *testing.T) {
	t.Parallel()
	txtest.Run(t, suiteOn(t, 0))
}

// Work that is done in several transactions does the same.
func TestConformance_Steps(t *testing.T) {
	t.Parallel()
	testenv.Long(t, "walks in small steps")
	storetest.WalkInSteps(t, suiteOn(t, 2))
}
