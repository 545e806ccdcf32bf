package driver_test

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/outmill/outmill/internal/testenv"
)

func TestMain(m *testing.M) {
	testenv.ManyAtATime()
	if !testenv.All() && !testenv.Given("rapid.checks") {
		// A walk is some hundred transactions.
		_ = flag.Set("rapid.checks", "2")
	}
	goleak.VerifyTestMain(m)
}
