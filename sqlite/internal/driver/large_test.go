package driver_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest"
)

// apart counts the payloads that have a row of their own.
func (h harness) apart() (n int) {
	require.NoError(h.t, h.store.driver.DB().QueryRowContext(h.t.Context(), "SELECT count(*) FROM outmill_payloads").Scan(&n))
	return n
}

func TestLargePayloads(t *testing.T) {
	t.Parallel()
	const limit = 64 << 10
	h := newHarness(t, storetest.Options{}, 0)
	s := h.store
	for _, group := range []string{"one", "two"} {
		require.NoError(t, s.RegisterGroup(t.Context(), outmill.Registration{Group: group}))
	}
	payloads := [][]byte{nil, {}, bytes.Repeat([]byte("x"), limit), bytes.Repeat([]byte("y"), limit+1), bytes.Repeat([]byte("z"), 10*limit)}
	var records []*outmill.Record
	for _, payload := range payloads {
		records = append(records, &outmill.Record{Topic: "orders", Payload: payload})
	}
	require.NoError(t, s.Append(t.Context(), records...))
	require.Equal(t, 4, h.apart(), "two for each group")
	for i, r := range records {
		got, err := s.Get(t.Context(), r.ID)
		require.NoError(t, err)
		require.Equal(t, payloads[i], got.Payload)
	}
	claim := func() []*outmill.Record {
		found, err := s.Claim(t.Context(), outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Group: "one", Limit: 10, Lease: time.Hour})
		require.NoError(t, err)
		return found
	}
	found := claim()
	require.Len(t, found, len(payloads))
	for i, r := range found {
		require.Equal(t, payloads[i], r.Payload)
	}
	var text string
	shown := s.DB().QueryRowContext(t.Context(), "SELECT payload FROM outmill_readable WHERE id = ?", found[4].ID.String())
	require.NoError(t, shown.Scan(&text))
	require.Equal(t, string(payloads[4]), text)

	t.Run("an edit moves the payload", func(t *testing.T) {
		bench, ok := outmill.As[roles.Repairs](outmill.Store(s))
		require.True(t, ok)
		r := found[4]
		require.NoError(t, s.Fail(t.Context(), []outmill.Settlement{{Lease: r.Lease(), Err: "refused"}}))
		for _, payload := range [][]byte{payloads[3], []byte("small"), {}, payloads[4], payloads[2], payloads[3]} {
			got, err := s.Get(t.Context(), r.ID)
			require.NoError(t, err)
			_, err = bench.Edit(t.Context(), r.ID, roles.Edit{Seen: storekit.FingerprintOf(got), Payload: payload})
			require.NoError(t, err)
			got, err = s.Get(t.Context(), r.ID)
			require.NoError(t, err)
			require.Equal(t, payload, got.Payload)
		}
	})

	require.Equal(t, 4, h.apart())
	require.NoError(t, s.Ack(t.Context(), "", []outmill.Lease{found[0].Lease(), found[3].Lease()}))
	require.Equal(t, 3, h.apart(), "an ack deletes it")
	n, err := s.Delete(t.Context(), found[4].ID)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, 2, h.apart(), "a deletion does")
}
