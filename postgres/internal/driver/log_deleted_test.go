package driver_test

import (
	"strings"
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

// A search by id reads the log once, if nothing of it is settled.
func TestLog_APageOfManyIsOneLook(t *testing.T) {
	t.Parallel()
	s := openLogged(t)
	require.NoError(t, s.RegisterGroup(t.Context(), outmill.Registration{Group: "readers", Topics: outmill.Topics{Include: []string{"many"}}}))
	require.NoError(t, s.Append(t.Context(), made("many", "x", 700)...))
	ctx, seen := tapped(t.Context())
	query := outmill.ListQuery{Topic: "many", Status: outmill.StatusPending, Limit: 300}
	for page, want := range []int{300, 300, 100} {
		found, err := s.DeleteWhere(ctx, query)
		require.NoError(t, err)
		require.Equal(t, want, found.Changed)
		require.Equal(t, want < 300, found.Done)
		query.After = found.Next
		looks := 0
		for _, trip := range seen.list() {
			for _, value := range trip {
				if text, is := value.(string); is && strings.Contains(text, "/* outmill log_after */") {
					looks++
				}
			}
		}
		require.Equal(t, page+1, looks)
	}
}
