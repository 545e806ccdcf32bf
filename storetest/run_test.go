package storetest

import (
	"testing"

	"github.com/outmill/outmill/storetest/internal/mutants"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun_Names(t *testing.T) {
	t.Parallel()
	mutants.RequireDistinct(t, sections())
}
