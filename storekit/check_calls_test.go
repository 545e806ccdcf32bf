package storekit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func TestCheckList(t *testing.T) {
	t.Parallel()
	t.Run("fills in the limit and keeps the rest", func(t *testing.T) {
		t.Parallel()
		query, err := storekit.CheckList(outmill.ListQuery{Topic: "orders", Status: outmill.StatusDead})
		require.NoError(t, err)
		require.Equal(t, outmill.ListQuery{Topic: "orders", Status: outmill.StatusDead, Limit: 100}, query)
	})
	t.Run("refuses a negative limit and an unknown status", func(t *testing.T) {
		t.Parallel()
		for field, query := range map[string]outmill.ListQuery{"ListQuery.Limit is -1": {Limit: -1}, "ListQuery.Status": {Status: "lost"}} {
			_, err := storekit.CheckList(query)
			require.ErrorIs(t, err, outmill.ErrInvalidConfig)
			require.ErrorContains(t, err, field)
		}
	})
}

func TestCheckStats(t *testing.T) {
	t.Parallel()
	t.Run("fills in the limit", func(t *testing.T) {
		t.Parallel()
		for given, want := range map[int]int{0: 10_000, 7: 7} {
			limit, err := storekit.CheckStats(given)
			require.NoError(t, err)
			require.Equal(t, want, limit)
		}
	})
	t.Run("refuses a negative limit", func(t *testing.T) {
		t.Parallel()
		_, err := storekit.CheckStats(-1)
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
	})
}

func TestCheckLimit(t *testing.T) {
	t.Parallel()
	t.Run("refuses limits below 1", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, storekit.CheckLimit(1))
		require.ErrorIs(t, storekit.CheckLimit(0), outmill.ErrInvalidConfig)
	})
}

func TestCheckExtend(t *testing.T) {
	t.Parallel()
	t.Run("refuses a lease that does not last", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, storekit.CheckExtend(time.Nanosecond))
		require.ErrorIs(t, storekit.CheckExtend(0), outmill.ErrInvalidConfig)
	})
}
