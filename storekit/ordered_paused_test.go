package storekit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

func TestOrderedScan_Unordered(t *testing.T) {
	t.Parallel()

	t.Run("without an order a paused record goes aside and holds no other of its key", func(t *testing.T) {
		t.Parallel()
		pauses := roles.NewPauseList(7, []roles.PauseInfo{{PauseScope: roles.PauseScope{TenantID: "acme"}, Number: 7}})
		scan := storekit.OrderedScan{Want: 10, Pauses: pauses, Group: "readers", Topic: "orders", Unordered: true}
		scan.Page([]storekit.Candidate{{Seq: 1, Key: "k", TenantID: "acme"}, {Seq: 2, Key: "k"}})
		require.Empty(t, scan.Holding)
		require.Len(t, scan.Aside, 1)
		require.Equal(t, int64(7), scan.Aside[0].Pause)
		require.Len(t, scan.Leasing, 1)
		require.Equal(t, int64(2), scan.Leasing[0].Seq)
	})
}
