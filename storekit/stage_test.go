package storekit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func TestStatusOf(t *testing.T) {
	t.Parallel()
	t.Run("knows the status of each stage", func(t *testing.T) {
		t.Parallel()
		var all []outmill.Status
		for stage := storekit.StageAside; stage <= storekit.StageDead; stage++ {
			all = append(all, storekit.StatusOf(stage))
		}
		const pending = outmill.StatusPending
		require.Equal(t, []outmill.Status{pending, pending, pending, pending, pending, outmill.StatusLeased, pending, outmill.StatusProcessed,
			outmill.StatusDead}, all)
	})
}
