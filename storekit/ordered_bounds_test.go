package storekit_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

func placesOf(list []storekit.Candidate) (places []int64) {
	for _, r := range list {
		places = append(places, r.Seq)
	}
	return places
}

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

	t.Run("a scan holds a key from its first paused record on, and sets aside paused records without a key", func(t *testing.T) {
		t.Parallel()
		pauses := roles.NewPauseList(1, []roles.PauseInfo{
			{PauseScope: roles.PauseScope{TenantID: "acme"}, Number: 7}, {PauseScope: roles.PauseScope{Topic: "orders", Key: "p"}, Number: 8},
		})
		free := storekit.KeyState{Waiting: storekit.NoSeq, Held: storekit.NoSeq}
		pages := [][]storekit.Candidate{
			{
				{Seq: 1, Key: "k", First: true, State: free}, {Seq: 2, Key: "k", TenantID: "acme"}, {Seq: 3, Key: "k"},
				{Seq: 4, TenantID: "acme"}, {Seq: 5}, {Seq: 6, Key: "p", First: true, State: free}, {Seq: 7, TenantID: "acme", Expired: true},
			},
			{{Seq: 8, Key: "k", First: true, State: free}, {Seq: 9, Key: "other", First: true, State: free}},
		}
		w := storekit.OrderedScan{Want: 10, First: true, Pauses: pauses, Group: "g", Topic: "orders"}
		w.Page(pages[0])
		require.Equal(t, []int64{1, 5}, placesOf(w.Leasing))
		require.Equal(t, []int64{2, 3, 6}, placesOf(w.Holding))
		require.Equal(t, []int64{4}, placesOf(w.Aside))
		require.EqualValues(t, 7, w.Aside[0].Pause)
		require.Equal(t, []int64{7}, placesOf(w.Expired))
		require.Equal(t, map[string]storekit.HeldKey{
			"k": {Blocker: storekit.Blocker{By: storekit.BlockedByPause, Pause: 7}, Head: 2},
			"p": {Blocker: storekit.Blocker{By: storekit.BlockedByPause, Pause: 8}, Head: 6},
		}, w.HeldKeys)
		w.Settled()
		w.Page(pages[1])
		require.Equal(t, []int64{9}, placesOf(w.Leasing), "the scan remembers the key on the next page")
		require.Equal(t, []int64{8}, placesOf(w.Holding))

		whole := storekit.OrderedScan{Want: 10, First: true, Pauses: pauses, Group: "g", Topic: "orders", WholeTopic: true}
		whole.Page(pages[0])
		require.Equal(t, []int64{1}, placesOf(whole.Leasing))
		require.True(t, whole.Full, "a topic in order ends at its first paused record")
		require.Empty(t, append(whole.Holding, whole.Aside...))
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
