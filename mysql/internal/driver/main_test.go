package driver_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/outmill/outmill/internal/testenv"
)

func TestMain(m *testing.M) {
	testenv.ManyAtATime()
	goleak.VerifyTestMain(m)
}
