package storekit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/storekit"
)

func TestOrderedScan_Turns(t *testing.T) {
	t.Parallel()

	free := storekit.KeyState{Waiting: storekit.NoSeq, Held: storekit.NoSeq}

	t.Run("a record waits for those before expired ones that the scan has met before them", func(t *testing.T) {
		t.Parallel()
		page := []storekit.Candidate{
			{Seq: 3, Key: "k", Expired: true, Behind: 2, First: true, State: free},
			{Seq: 2, Key: "k", Expired: true, Behind: 1},
			{Seq: 4, Key: "k", Behind: 3},
			{Seq: 1, Key: "k"},
			{Seq: 5, Key: "k", Behind: 4},
		}
		scan := storekit.OrderedScan{Want: 10, Turns: true}
		scan.Page(page)
		require.Equal(t, []int64{3, 2}, seqsOf(scan.Expired))
		require.Equal(t, []int64{1}, seqsOf(scan.Leasing))
		require.Equal(t, []int64{4, 5}, seqsOf(scan.Holding), "4 comes before 1")
		require.Equal(t, storekit.HeldKey{Head: 4}, scan.HeldKeys["k"], "nothing blocks the key when 1 is leased")
	})

	t.Run("a record is leased if all before it have expired, in whatever order the scan meets these", func(t *testing.T) {
		t.Parallel()
		scan := storekit.OrderedScan{Want: 10, Turns: true}
		scan.Page([]storekit.Candidate{
			{Seq: 3, Key: "k", Expired: true, Behind: 2, First: true, State: free},
			{Seq: 2, Key: "k", Expired: true, Behind: 1},
			{Seq: 1, Key: "k", Expired: true},
			{Seq: 4, Key: "k", Behind: 3},
		})
		require.Equal(t, []int64{4}, seqsOf(scan.Leasing))
		require.Empty(t, scan.Holding)
	})
}

func seqsOf(list []storekit.Candidate) (seqs []int64) {
	for _, r := range list {
		seqs = append(seqs, r.Seq)
	}
	return seqs
}
