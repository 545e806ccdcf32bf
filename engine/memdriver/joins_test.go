package memdriver_test

import (
	"testing"

	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/storetest"
	"github.com/outmill/outmill/storetest/joinstest"
)

// joinSuite has no sentence that only another suite has.
func joinSuite(suite storetest.Engine) storetest.Engine {
	suite.Unsupported = nil
	return suite
}

func TestConformance_Joins(t *testing.T) { joinstest.Run(t, joinSuite(suiteOf(0, nil))) }

func TestJoinsOfLoser_Variant(t *testing.T) {
	testenv.WithoutRace(t, "joins with lost rows")
	joinstest.Run(t, joinSuite(suiteOf(0, loses)))
}

func TestConformance_JoinsInterleaved(t *testing.T) {
	joinstest.Run(t, joinSuite(suiteInterleaved(0, again)))
}
