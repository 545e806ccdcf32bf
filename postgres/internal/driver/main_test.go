package driver_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
)

func TestMain(m *testing.M) {
	testenv.ManyAtATime()
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := postgrestest.DropTemplates(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
		os.Exit(code)
	}))
}
