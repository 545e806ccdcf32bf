package driver_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

// ackCases say which leases of a batch of four rows an ack has, and which rows stay leased. before may change something first.
var ackCases = map[string]struct {
	before func(w *takingWorld, leases []outmill.Lease)
	ack    func(leases []outmill.Lease) []outmill.Lease
	stay   int
}{
	"all rows in their order":      {nil, func(l []outmill.Lease) []outmill.Lease { return l }, 0},
	"all rows in another order":    {nil, func(l []outmill.Lease) []outmill.Lease { slices.Reverse(l); return l }, 0},
	"all rows, and each once more": {nil, func(l []outmill.Lease) []outmill.Lease { return append(l, l...) }, 0},
	"some rows":                    {nil, func(l []outmill.Lease) []outmill.Lease { return l[1:3] }, 2},
	"the first rows":               {nil, func(l []outmill.Lease) []outmill.Lease { return l[:3] }, 1},
	"all rows, of which one is done": {func(w *takingWorld, l []outmill.Lease) { w.ack(l[2:3]) },
		func(l []outmill.Lease) []outmill.Lease { return l }, 0},
	"all rows, of which one has moved": {func(w *takingWorld, l []outmill.Lease) {
		require.NoError(w, w.Abandon(w.Context(), []outmill.Settlement{{Lease: l[2]}}))
	}, func(l []outmill.Lease) []outmill.Lease { return l }, 1},
	"all rows, of which one was deleted": {func(w *takingWorld, l []outmill.Lease) {
		_, err := w.Delete(w.Context(), l[2].ID)
		require.NoError(w, err)
	}, func(l []outmill.Lease) []outmill.Lease { return l }, 0},
	"all rows, with another claim's number": {nil, func(l []outmill.Lease) []outmill.Lease { l[3].Claim = 2; return l }, 1},
	"all rows, with another owner": {nil, func(l []outmill.Lease) []outmill.Lease {
		for i := range l {
			l[i].Owner = outmill.NewOwnerToken()
		}
		return l
	}, 4},
}

func (w *takingWorld) ack(leases []outmill.Lease) {
	w.Helper()
	require.NoError(w, w.Ack(w.Context(), "worker", leases))
}

// left is how many records the topic has.
func (w *takingWorld) left() int {
	w.Helper()
	records, err := w.List(w.Context(), outmill.ListQuery{Topic: w.topic, Limit: 100})
	require.NoError(w, err)
	return len(records)
}

func TestAck_OfABatch(t *testing.T) {
	t.Parallel()
	s, counts := openTaking(t)
	for name, c := range ackCases {
		t.Run("an ack settles exactly what it names: "+name, func(t *testing.T) {
			w := &takingWorld{T: t, logged: s, counts: counts, topic: "acks of " + name, owner: outmill.NewOwnerToken()}
			for _, key := range []string{"a", "b", "", "c"} {
				w.append(key)
			}
			leases := leasesOf(w.claim())
			require.Len(t, leases, 4)
			if c.before != nil {
				c.before(w, leases)
			}
			w.ack(c.ack(slices.Clone(leases)))
			require.Equal(t, c.stay, w.left())
			w.append("d")
			require.Contains(t, w.keys(), "d", "the next claim goes on behind it")
		})
	}

	t.Run("an ack of two batches settles both", func(t *testing.T) {
		w := &takingWorld{T: t, logged: s, counts: counts, topic: "two batches", owner: outmill.NewOwnerToken()}
		var leases []outmill.Lease
		for range 2 {
			w.append("a")
			w.append("b")
			leases = append(leases, leasesOf(w.claim())...)
		}
		require.Len(t, leases, 4)
		w.ack(leases)
		require.Zero(t, w.left())
	})
}
