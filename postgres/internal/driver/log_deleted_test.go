package driver_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

// What an operator deletes of the log is one range for a call, so that later claims jump over it.
func TestLog_ManyAreDeletedByARange(t *testing.T) {
	t.Parallel()
	_, store := ready(t)
	topics := outmill.Topics{Include: []string{"orders"}}
	require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: "readers", Topics: topics}))
	records := made("orders", "x", 300)
	require.NoError(t, store.Append(t.Context(), records...))
	var ids []outmill.WorkItemID
	for _, r := range records[50:250] {
		ids = append(ids, r.ID)
	}
	deleted, err := store.Delete(t.Context(), ids...)
	require.NoError(t, err)
	require.Equal(t, 200, deleted)
	require.Equal(t, 1, valueOf[int](t, store.db, "SELECT count(*) FROM outmill.skip_ranges"))
	require.Zero(t, valueOf[int](t, store.db, "SELECT count(*) FROM outmill.skips"))

	var found []*outmill.Record
	for range 10 {
		got, err := store.Claim(t.Context(), outmill.ClaimRequest{
			Owner: outmill.NewOwnerToken(), Group: "readers", Topics: topics, Limit: 40, Lease: time.Hour, Order: outmill.OrderNone,
		})
		require.NoError(t, err)
		found = append(found, got...)
	}
	require.Len(t, found, 100)
	for i, r := range found {
		require.Equal(t, append(records[:50:50], records[250:]...)[i].Payload, r.Payload)
	}
}
