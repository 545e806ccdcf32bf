package sqlite_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/outmill/outmill/internal/testenv"
)

func TestMain(m *testing.M) {
	if testenv.UnderRace {
		// A quarter of the default number of walks for each property.
		_ = flag.Set("rapid.checks", "25")
	}
	goleak.VerifyTestMain(m)
}
