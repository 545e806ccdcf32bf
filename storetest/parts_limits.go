package storetest

import (
	"context"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest/internal/suite"
)

// claimSoon claims, and fails if the claim does not end.
func (e *env) claimSoon(owner outmill.OwnerToken, changes ...func(*outmill.ClaimRequest)) []*outmill.Record {
	e.T.Helper()
	ctx, cancel := context.WithTimeout(e.Ctx, time.Minute)
	defer cancel()
	return e.Under(ctx).Claim(owner, changes...)
}

// partsLimited has parts with more records than a claim may take of a part.
func partsLimited(e *env, order func(*outmill.ClaimRequest)) {
	tenants := partTenants(3)
	e.Filled(ofTenants(30, tenants...)...)
	total := 0
	for _, most := range []int{1, 2, 5} {
		for _, limit := range []int{4, 10, 20} {
			found := e.claimSoon(outmill.NewOwnerToken(), order, suite.Limit(limit), func(r *outmill.ClaimRequest) {
				r.PartLimit, r.Full = most, func(string, string) uint64 { return 0 }
			})
			require.NotEmpty(e.T, found)
			require.LessOrEqual(e.T, len(found), limit)
			for tenant, n := range tally(found) {
				require.LessOrEqual(e.T, n, most, "records of %s", tenant)
			}
			e.Ack(found...)
			total += len(found)
		}
	}
	require.Len(e.T, e.List(outmill.ListQuery{Status: outmill.StatusPending, Limit: 100}), 90-total)
}

// partsOfBytes has parts with more than the bytes of a claim, and one record that is larger than that.
func partsOfBytes(e *env, order func(*outmill.ClaimRequest)) {
	const size, most = 1000, 3500
	records := ofTenants(9, partTenants(3)...)
	for i, r := range records {
		r.Payload = make([]byte, size)
		if i == 4 {
			r.Payload = make([]byte, 2*most)
		}
	}
	e.Filled(records...)
	owner, come := outmill.NewOwnerToken(), 0
	for range records {
		found := e.claimSoon(owner, order, suite.Limit(20), func(r *outmill.ClaimRequest) { r.MaxBytes = most })
		bytes := 0
		for _, r := range found {
			bytes += r.Size()
		}
		require.True(e.T, len(found) == 1 || bytes <= most, "%d records of %d bytes", len(found), bytes)
		e.Ack(found...)
		come += len(found)
	}
	require.Equal(e.T, len(records), come)
}

// partsOfManyExpired has more expired records than one transaction of a claim makes dead.
func partsOfManyExpired(e *env, order func(*outmill.ClaimRequest)) {
	tenants := partTenants(2)
	e.Register(group)
	for range suite.Large(3000) / 300 {
		list := ofTenants(150, tenants...)
		for _, r := range list {
			r.TimeToLive = time.Hour
		}
		e.Append(list...)
	}
	e.Elapse(2 * time.Hour)
	e.Append(ofTenants(2, tenants...)...)
	require.Len(e.T, e.ClaimOn(outmill.NewOwnerToken(), order), 4)
	require.NotEqual(e.T, storekit.PartOf(orders, tenants[0]), storekit.PartOf(orders, tenants[1]))
}
