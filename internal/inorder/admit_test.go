package inorder_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/inorder"
)

func Test_a_walk_stops_at_what_became_due_after_the_moment_as_of_which_it_works(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	page := []inorder.Record{
		{Seq: 3, Due: at.Add(-time.Hour)},
		{Seq: 5, Due: at},
		{Seq: 6, Due: at},
		{Seq: 7, Due: at.Add(-time.Hour)},
	}
	seqs := func(until inorder.Moment) (list []int64) {
		w := inorder.Walk{Want: 10, Until: until, First: true}
		w.Page(page)
		for _, r := range w.Leasing {
			list = append(list, r.Seq)
		}
		return list
	}
	require.Equal(t, []int64{3, 5, 6, 7}, seqs(inorder.Moment{}), "the present")
	require.Equal(t, []int64{3, 5}, seqs(inorder.Moment{Due: at, Seq: 5}), "in one moment the places are in order")
	require.Equal(t, []int64{3}, seqs(inorder.Moment{Due: at.Add(-time.Microsecond), Seq: 9}))
}

func Test_a_claim_for_many_puts_more_in_line_than_it_takes(t *testing.T) {
	t.Parallel()
	require.Equal(t, []int{1000, 1000, 20_000}, []int{inorder.Steps(0).Admit(1), inorder.Steps(0).Admit(500), inorder.Steps(0).Admit(10_000)})
	require.Equal(t, []int{3, 3}, []int{inorder.Steps(3).Admit(500), inorder.Steps(3).Park()})
}

func Test_a_claim_without_a_deadline_has_no_half_time(t *testing.T) {
	t.Parallel()
	require.Zero(t, inorder.HalfTime(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	require.WithinRange(t, inorder.HalfTime(ctx), time.Now().Add(20*time.Minute), time.Now().Add(31*time.Minute))
}
