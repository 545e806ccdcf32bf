package storekit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/storekit"
)

func TestBatchSize(t *testing.T) {
	t.Parallel()

	t.Run("a claim for many puts more in line than it takes", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []int{1000, 1000, 20_000},
			[]int{storekit.BatchSize(0).Admit(1), storekit.BatchSize(0).Admit(500), storekit.BatchSize(0).Admit(10_000)})
		require.Equal(t, []int{3, 3}, []int{storekit.BatchSize(3).Admit(500), storekit.BatchSize(3).Park()})
	})
}
