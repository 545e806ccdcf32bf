package storekit_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func goodClaim() outmill.ClaimRequest {
	return outmill.ClaimRequest{Owner: outmill.NewOwnerToken(), Limit: 1, Lease: time.Second}
}

func TestClaim(t *testing.T) {
	t.Parallel()

	t.Run("a claim request with owner limit and lease is enough", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, storekit.CheckClaim(goodClaim()))
	})

	t.Run("a claim request that makes no sense is refused", func(t *testing.T) {
		t.Parallel()
		for field, spoil := range map[string]func(*outmill.ClaimRequest){
			"ClaimRequest.Owner":                  func(r *outmill.ClaimRequest) { r.Owner = outmill.OwnerToken{} },
			"ClaimRequest.Limit is 0":             func(r *outmill.ClaimRequest) { r.Limit = 0 },
			"ClaimRequest.MaxBytes is -1":         func(r *outmill.ClaimRequest) { r.MaxBytes = -1 },
			"ClaimRequest.Lease is 0s":            func(r *outmill.ClaimRequest) { r.Lease = 0 },
			"ClaimRequest.Lease is -1s":           func(r *outmill.ClaimRequest) { r.Lease = -time.Second },
			"ClaimRequest.Order is 3":             func(r *outmill.ClaimRequest) { r.Order = 3 },
			"ClaimRequest.Order is -1":            func(r *outmill.ClaimRequest) { r.Order = -1 },
			"ClaimRequest.KeyPolicy is 3":         func(r *outmill.ClaimRequest) { r.KeyPolicy = 3 },
			"ClaimRequest.KeyPolicy is -1":        func(r *outmill.ClaimRequest) { r.KeyPolicy = -1 },
			"want KeyBlock or KeySkip with Order": func(r *outmill.ClaimRequest) { r.Order, r.KeyPolicy = outmill.OrderTopic, outmill.KeyPark },
		} {
			t.Run(field, func(t *testing.T) {
				t.Parallel()
				req := goodClaim()
				spoil(&req)
				err := storekit.CheckClaim(req)
				require.ErrorIs(t, err, outmill.ErrInvalidConfig)
				require.ErrorContains(t, err, field)
				require.Len(t, joined(err), 1)
			})
		}
	})

	t.Run("a claim request reports names and numbers together", func(t *testing.T) {
		t.Parallel()
		err := storekit.CheckClaim(outmill.ClaimRequest{Group: " g", Topics: outmill.Topics{Include: []string{""}}})
		require.ErrorIs(t, err, outmill.ErrInvalidRecord)
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		require.Len(t, joined(err), 5, "group, topic pattern, owner, limit, lease")
	})
}
