package allstores

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
)

// TestTopics_Many has many topics become due together, as a tenant with a topic for each of its objects has, and then another one. How long
// that takes is logged: it is the machine's.
func TestTopics_Many(t *testing.T) {
	testenv.Unraced(t, "claims among 20,000 topics")
	const topics, limit = 20_000, 100
	for name, open := range stores {
		t.Run("another topic comes with one of the next claims on "+name, func(t *testing.T) {
			store := open(t)
			t.Cleanup(func() { require.NoError(t, store.Close()) })
			require.NoError(t, store.Ensure(t.Context()))
			require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{}))
			for i := 0; i < topics; {
				records := make([]*outmill.Record, 1000)
				for j := range records {
					records[j] = &outmill.Record{Topic: fmt.Sprintf("object.%05d", i), Key: "k"}
					i++
				}
				require.NoError(t, store.Append(t.Context(), records...))
			}
			require.NoError(t, store.Append(t.Context(), &outmill.Record{Topic: "other"}))
			began, owner, came := time.Now(), outmill.NewOwnerToken(), 0
			for claims := 1; claims <= 20; claims++ {
				found, err := store.Claim(t.Context(), outmill.ClaimRequest{Owner: owner, Limit: limit, Lease: time.Minute, Order: outmill.OrderKey})
				require.NoError(t, err)
				require.NotEmpty(t, found)
				var leases []outmill.Lease
				for _, r := range found {
					if leases = append(leases, r.Lease()); r.Topic == "other" {
						came = claims
						t.Logf("%s: the message of another topic came with claim %d, after %s", name, claims, time.Since(began).Round(time.Millisecond))
					}
				}
				require.NoError(t, store.Ack(t.Context(), "", leases))
			}
			t.Logf("%s: 20 claims of %d records and their acks took %s", name, limit, time.Since(began).Round(time.Millisecond))
			require.NotZero(t, came, "it comes with none of 20 claims")
		})
	}
}
