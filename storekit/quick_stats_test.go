package storekit_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// statsOf answers with that many pairs of so many dead records, and keeps the limits that it was asked with.
type statsOf struct {
	outmill.Inspector
	pairs  int
	dead   int
	limits []int
	err    error
}

func (s *statsOf) Stats(_ context.Context, limit int) ([]outmill.TopicStats, error) {
	s.limits = append(s.limits, limit)
	stats := make([]outmill.TopicStats, s.pairs)
	for i := range stats {
		stats[i].Dead = min(s.dead, limit)
	}
	return stats, s.err
}

func TestQuickStats(t *testing.T) {
	t.Parallel()

	t.Run("counts to fewer the more groups and topics there are", func(t *testing.T) {
		t.Parallel()
		for pairs, want := range map[int]int{1: 10_000, 2: 10_000, 10: 2_000, 100: 200, 100_000: 200} {
			from := &statsOf{pairs: pairs, dead: 1_000_000}
			stats, limit, err := storekit.QuickStats(t.Context(), from)
			require.NoError(t, err)
			require.Len(t, stats, pairs)
			require.Equal(t, want, limit)
			require.Equal(t, want, stats[0].Dead)
			require.Equal(t, want, from.limits[len(from.limits)-1])
			require.LessOrEqual(t, len(from.limits), 2)
		}
	})

	t.Run("asks once where there is little to count, or many topics", func(t *testing.T) {
		t.Parallel()
		for _, from := range []*statsOf{{}, {pairs: 1, dead: 199}, {pairs: 100, dead: 1_000_000}} {
			stats, limit, err := storekit.QuickStats(t.Context(), from)
			require.NoError(t, err)
			require.Equal(t, []int{200}, from.limits)
			require.True(t, limit == 200 || len(stats) == 0 || stats[0].Dead < limit)
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
		stats, limit, err := storekit.QuickStats(t.Context(), &statsOf{pairs: 20, dead: 300, err: broken})
		require.ErrorIs(t, err, broken)
		require.Len(t, stats, 20)
		require.Equal(t, 1_000, limit)
	})
}
