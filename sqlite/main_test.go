package sqlite_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if underRace {
		// A quarter of the default number of walks for each property.
		_ = flag.Set("rapid.checks", "25")
	}
	goleak.VerifyTestMain(m)
}
