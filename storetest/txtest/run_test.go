package txtest

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/outmill/outmill/storetest/internal/mutants"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun_Names(t *testing.T) {
	t.Parallel()
	mutants.RequireDistinct(t, sections())
}
