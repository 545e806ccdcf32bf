package drivertest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/engine/driver/drivertest"
	"github.com/outmill/outmill/engine/memdriver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openMemory(t *testing.T) driver.DB {
	t.Helper()
	d := memdriver.Driver{Database: memdriver.New()}
	if err := d.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestRun_Memory(t *testing.T) { drivertest.Run(t, openMemory) }
