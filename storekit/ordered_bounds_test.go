package storekit_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/storekit"
)

func TestOrderedBounds(t *testing.T) {
	t.Parallel()

	t.Run("a scan stops at records that became due after its moment", func(t *testing.T) {
		t.Parallel()
		at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
		page := []storekit.Candidate{
			{Seq: 3, Due: at.Add(-time.Hour)},
			{Seq: 5, Due: at},
			{Seq: 6, Due: at},
			{Seq: 7, Due: at.Add(-time.Hour)},
		}
		seqs := func(until storekit.Moment) (list []int64) {
			w := storekit.OrderedScan{Want: 10, Until: until, First: true}
			w.Page(page)
			for _, r := range w.Leasing {
				list = append(list, r.Seq)
			}
			return list
		}
		require.Equal(t, []int64{3, 5, 6, 7}, seqs(storekit.Moment{}), "the present")
		require.Equal(t, []int64{3, 5}, seqs(storekit.Moment{Due: at, Seq: 5}), "in one moment the places are in order")
		require.Equal(t, []int64{3}, seqs(storekit.Moment{Due: at.Add(-time.Microsecond), Seq: 9}))
	})

	t.Run("a claim for many puts more in line than it takes", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []int{1000, 1000, 20_000},
			[]int{storekit.BatchSize(0).Admit(1), storekit.BatchSize(0).Admit(500), storekit.BatchSize(0).Admit(10_000)})
		require.Equal(t, []int{3, 3}, []int{storekit.BatchSize(3).Admit(500), storekit.BatchSize(3).Park()})
	})

	t.Run("a claim without a deadline has no half time", func(t *testing.T) {
		t.Parallel()
		require.Zero(t, storekit.HalfTime(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		require.WithinRange(t, storekit.HalfTime(ctx), time.Now().Add(20*time.Minute), time.Now().Add(31*time.Minute))
	})
}
