package outmill_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

func TestRecord(t *testing.T) {
	t.Parallel()

	t.Run("a status is one of four words", func(t *testing.T) {
		t.Parallel()
		for _, word := range []string{"pending", "leased", "processed", "dead"} {
			status, err := outmill.ParseStatus(word)
			require.NoError(t, err)
			require.Equal(t, outmill.Status(word), status)
		}
		for _, word := range []string{"", "Pending", "done", "dead "} {
			_, err := outmill.ParseStatus(word)
			require.ErrorContains(t, err, "want pending, leased, processed or dead")
		}
	})

	t.Run("the size counts payload metadata and text", func(t *testing.T) {
		t.Parallel()
		require.Zero(t, (&outmill.Record{}).Size())
		rec := &outmill.Record{
			MessageID: "1", Topic: "22", Key: "333", Payload: make([]byte, 1000),
			CorrelationID: "4444", CausationID: "55555", TenantID: "666666",
			TraceParent: "7777777", TraceState: "88888888", DedupKey: "999999999",
			Metadata: map[string]string{"a": "ü"},
		}
		require.Equal(t, 1000+1+2+3+4+5+6+7+8+9+3, rec.Size())
	})

	t.Run("a lease is the record its owner and the claim", func(t *testing.T) {
		t.Parallel()
		rec := &outmill.Record{ID: outmill.NewWorkItemID(), Owner: outmill.NewOwnerToken(), Claims: 4}
		first := rec.Lease()
		require.Equal(t, outmill.Lease{ID: rec.ID, Owner: rec.Owner, Claim: 4}, first)
		rec.Claims++
		require.NotEqual(t, first, rec.Lease(), "a later claim by the same owner is another lease")
	})

	t.Run("a record is suspect from its second expiry", func(t *testing.T) {
		t.Parallel()
		require.False(t, (&outmill.Record{Expiries: 1, Attempts: 9, Claims: 9}).Suspect())
		require.True(t, (&outmill.Record{Expiries: 2}).Suspect())
		require.True(t, (&outmill.Record{Expiries: 3}).Suspect())
	})

	t.Run("orders and key policies have names", func(t *testing.T) {
		t.Parallel()
		for want, got := range map[string]string{
			"none": outmill.OrderNone.String(), "key": outmill.OrderKey.String(), "topic": outmill.OrderTopic.String(),
			"block": outmill.KeyBlock.String(), "skip": outmill.KeySkip.String(), "park": outmill.KeyPark.String(),
		} {
			require.Equal(t, want, got)
		}
		require.Equal(t, "invalid", outmill.Order(-1).String())
		require.Equal(t, "invalid", outmill.KeyPolicy(3).String())
		require.Equal(t, outmill.OrderNone, outmill.ClaimRequest{}.Order, "no order by default")
		require.Equal(t, outmill.KeyBlock, outmill.ClaimRequest{}.KeyPolicy)
	})

	t.Run("a nil handle is seen through its interface", func(t *testing.T) {
		t.Parallel()
		var store outmill.Store
		var pointer *openedStore
		for _, handle := range []any{nil, store, pointer, map[string]int(nil), []int(nil), (func())(nil), (chan int)(nil)} {
			require.True(t, outmill.IsNil(handle), "%T", handle)
		}
		for _, handle := range []any{0, "", openedStore{}, &openedStore{}, []int{}, func() {}} {
			require.False(t, outmill.IsNil(handle), "%T", handle)
		}
	})
}
