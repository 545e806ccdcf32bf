package dashboard_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/dashboard"
)

func TestEdit_UnseenCharacters(t *testing.T) {
	t.Parallel()
	s := newSite(t, newSQLite(t), dashboard.Config{AllowChanges: true, ShowPayloads: true})
	s.register("billing", "orders")
	s.append(&outmill.Record{Topic: "orders", Payload: []byte("a\u202eb"), Metadata: map[string]string{"c": "\u202e\u009b"}})
	claimed, err := s.Claim(t.Context(), outmill.ClaimRequest{
		Owner: outmill.NewOwnerToken(), Group: "billing", Topics: outmill.Topics{Include: []string{"orders"}}, Limit: 1, Lease: time.Minute,
	})
	require.NoError(t, err)
	require.NoError(t, s.Fail(t.Context(), []outmill.Settlement{{Lease: claimed[0].Lease(), Err: "refused"}}))
	page := s.page("edit?id=" + claimed[0].ID.String()).text()
	require.Contains(t, page, `"\u202e\u009b"`, "the metadata is escaped")
	require.NotContains(t, page, "\u009b")
	require.Contains(t, page, "cannot be seen, or that change how the text around them looks: U+202E.")
}
