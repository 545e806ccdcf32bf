package driver_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	contract "github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/engine/driver/drivertest"
	"github.com/outmill/outmill/storetest"
)

// Each search, page and change is what it is in memory.
func TestDriver(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, func(t *testing.T) contract.DB {
		d := newHarness(t, storetest.Options{}, 0).store.driver
		require.NoError(t, d.Ensure(t.Context()))
		return d
	})
}
