package next_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storetest"
)

// TestPaired_Skip prints how long Skip takes in small steps while claims go on all the time, beside the time without them.
func TestPaired_Skip(t *testing.T) {
	if os.Getenv("OUTMILL_PAIRS") == "" {
		t.Skip("OUTMILL_PAIRS is the number of rounds")
	}
	const parked = 150
	skip := func(beside bool) (took time.Duration, claims int) {
		h := suiteOn(t, storekit.BatchSize(2)).New(t, storetest.Options{}).(harness)
		s, ctx := h.store, t.Context()
		require.NoError(t, s.RegisterGroup(ctx, outmill.Registration{Group: "readers", Topics: outmill.Topics{Include: []string{"orders"}}}))
		records := make([]*outmill.Record, parked)
		for i := range records {
			records[i] = &outmill.Record{Topic: "orders", Key: "key", MessageID: fmt.Sprint(i)}
		}
		require.NoError(t, s.Append(ctx, records...))
		owner := outmill.NewOwnerToken()
		claim := func() []*outmill.Record {
			got, err := s.Claim(ctx, outmill.ClaimRequest{
				Owner: owner, Group: "readers", Limit: 10, Lease: time.Hour, Order: outmill.OrderKey, KeyPolicy: outmill.KeyPark,
			})
			require.NoError(t, err)
			return got
		}
		first := claim()
		require.NoError(t, s.Release(ctx, leasesOf(first[1:])))
		require.NoError(t, s.Fail(ctx, []outmill.Settlement{{Lease: first[0].Lease(), Err: "no", Park: true}}))
		for h.status(records[parked-1].ID) != outmill.StatusDead {
			require.Empty(t, claim())
		}
		began, done := time.Now(), make(chan error, 1)
		go func() {
			for {
				result, err := s.Skip(context.WithoutCancel(ctx), records[0].ID)
				if err != nil || result.Done {
					done <- err
					return
				}
			}
		}()
		var found []*outmill.Record
		for wait := true; wait; {
			select {
			case err := <-done:
				require.NoError(t, err)
				took, wait = time.Since(began), false
			default:
				if beside {
					found = append(found, claim()...)
					claims++
				}
			}
		}
		for got := claim(); len(got) > 0; got = claim() {
			found = append(found, got...)
		}
		require.Len(t, found, parked-1)
		for i, r := range found {
			require.Equal(t, fmt.Sprint(i+1), r.MessageID, "in their order")
		}
		return took, claims
	}
	for range 3 {
		alone, _ := skip(false)
		beside, claims := skip(true)
		t.Logf("Skip of a record that holds %d others, in steps of 2: %v alone, %v beside %d claims", parked-1, alone, beside, claims)
	}
}

func (h harness) status(id outmill.WorkItemID) outmill.Status {
	found, err := h.store.Get(h.t.Context(), id)
	require.NoError(h.t, err)
	return found.Status
}

var _ roles.Repairs = opened{}
