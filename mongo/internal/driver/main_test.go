package driver_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/outmill/outmill/internal/testenv"
)

func TestMain(m *testing.M) {
	if !testenv.All() {
		// A walk is some hundred transactions. The flag on the command line overrides it.
		_ = flag.Set("rapid.checks", "2")
	}
	testenv.ManyAtATime()
	goleak.VerifyTestMain(m)
}
