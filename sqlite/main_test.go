package sqlite_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if underRace {
		// A quarter of the walks that a property is checked with.
		_ = flag.Set("rapid.checks", "25")
	}
	goleak.VerifyTestMain(m)
}
