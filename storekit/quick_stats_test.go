package storekit_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// statsOf answers with that many pairs, and keeps the limits that it was asked with.
type statsOf struct {
	outmill.Inspector
	pairs  int
	limits []int
	err    error
}

func (s *statsOf) Stats(_ context.Context, limit int) ([]outmill.TopicStats, error) {
	s.limits = append(s.limits, limit)
	return make([]outmill.TopicStats, s.pairs), s.err
}

func TestQuickStats(t *testing.T) {
	t.Parallel()

	t.Run("counts to fewer the more groups and topics there are", func(t *testing.T) {
		t.Parallel()
		for pairs, want := range map[int]int{0: 10_000, 1: 10_000, 2: 10_000, 10: 2_000, 100: 200, 100_000: 100} {
			from := &statsOf{pairs: pairs}
			stats, limit, err := storekit.QuickStats(t.Context(), from)
			require.NoError(t, err)
			require.Len(t, stats, pairs)
			require.Equal(t, want, limit)
			require.Equal(t, []int{1, want}, from.limits)
		}
	})

	t.Run("returns the error of the store", func(t *testing.T) {
		t.Parallel()
		broken := errors.New("broken")
		_, _, err := storekit.QuickStats(t.Context(), &statsOf{err: broken})
		require.ErrorIs(t, err, broken)
	})

	t.Run("returns what a store of many has, with the error of the others", func(t *testing.T) {
		t.Parallel()
		broken := errors.New("broken")
		stats, limit, err := storekit.QuickStats(t.Context(), &statsOf{pairs: 20, err: broken})
		require.ErrorIs(t, err, broken)
		require.Len(t, stats, 20)
		require.Equal(t, 1_000, limit)
	})
}
