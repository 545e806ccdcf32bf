package memdriver_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/engine/memdriver"
	"github.com/outmill/outmill/storekit"
)

func TestTransact(t *testing.T) {
	t.Parallel()

	t.Run("what a run of the function noted is forgotten before the function runs again", func(t *testing.T) {
		t.Parallel()
		store := engine.New(memdriver.Driver{Database: memdriver.New()}, engine.Config{Name: "memory"})
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		require.NoError(t, store.Ensure(t.Context()))
		var noted []int
		ctx := storekit.OnAgain(t.Context(), func() (forget func()) { return func() { noted = nil } })
		runs := 0
		require.NoError(t, store.Transact(ctx, func(context.Context) error {
			runs++
			noted = append(noted, runs)
			if runs == 1 {
				return driver.ErrBusy
			}
			return nil
		}))
		require.Equal(t, []int{2}, noted)
	})
}
