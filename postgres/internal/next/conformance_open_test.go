//go:build outmill_next_open

package next_test

import (
	"testing"

	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/storetest"
)

// The short form passes. The stress with repairs fails now and then in the long form, on a busy machine: see
// docs/postgres-next.md.

func TestConformance(t *testing.T) {
	t.Parallel()
	suite := suiteOn(t, connect(t, postgrestest.Database(t), 40, nil), 0)
	storetest.Run(t, suite)
}

// Work that is done in several transactions does the same.
func TestConformance_Steps(t *testing.T) {
	t.Parallel()
	testenv.Long(t, "walks in small steps")
	storetest.WalkInSteps(t, suiteOn(t, connect(t, postgrestest.Database(t), 40, nil), 2))
}
