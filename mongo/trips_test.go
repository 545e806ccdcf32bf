package mongo_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storetest"
)

// Round trips are what a distant database costs.
func TestStore_RoundTrips(t *testing.T) {
	t.Parallel()
	client := clientOf(t, options.Client().ApplyURI(mongotest.Server(t)).SetMonitor(&event.CommandMonitor{Started: noteTrip}))
	h := engine(0, client.Database(mongotest.Database(t).Name())).New(t, storetest.Options{}).(harness)
	s, ctx := h.store, t.Context()
	require.NoError(t, s.RegisterGroup(ctx, outmill.Registration{Group: "readers", Topics: outmill.Topics{Include: []string{"orders"}}}))
	trips := func(n int, what string, call func(ctx context.Context) error) {
		tapped, seen := h.Tap(ctx)
		require.NoError(t, call(tapped), what)
		require.Len(t, seen(), n, what)
	}
	records := func(n int) (list []*outmill.Record) {
		for range n {
			list = append(list, &outmill.Record{Topic: "orders", Key: outmill.NewOwnerToken().String()})
		}
		return list
	}
	trips(1, "a question for rest", func(ctx context.Context) error {
		_, self := s.IdleWith()
		_, err := s.AreIdle(ctx, []any{self})
		return err
	})
	require.NoError(t, s.Append(ctx, records(1)...)) // the registrations are read
	trips(2, "the state, and the insert", func(ctx context.Context) error { return s.Append(ctx, records(1)...) })
	trips(3, "the state, the inserts, and the commit", func(ctx context.Context) error { return s.Append(ctx, records(100)...) })
	for order, want := range map[outmill.Order]int{outmill.OrderNone: 2, outmill.OrderKey: 5} {
		var got []*outmill.Record
		fewest := 100
		for tries := 0; tries < 4 || fewest > want && tries < 40; tries++ {
			// Some of them look for topics first, on a slow machine most. By key, a claim reads the states of its keys only where something
			// is leased.
			if got != nil {
				require.NoError(t, s.Ack(ctx, "worker", leasesOf(got)))
			}
			tapped, seen := h.Tap(ctx)
			var err error
			got, err = s.Claim(tapped, outmill.ClaimRequest{
				Owner: outmill.NewOwnerToken(), Group: "readers", Limit: 1, Lease: time.Hour, Order: order,
				Topics: outmill.Topics{Include: []string{"orders"}},
			})
			require.NoError(t, err)
			require.Len(t, got, 1)
			fewest = min(fewest, len(seen()))
		}
		require.Equal(t, want, fewest, "a claim of a topic that is known, with order %v", order)
		// The note of the handler is in its transaction.
		begun, commit, _ := h.Begin(s)
		trips(2, "the lease with the note, and the insert", func(ctx context.Context) error {
			own := s.WithTx(ctx, driver.SessionFromContext(begun))
			duplicate, err := s.PutNote(own, roles.Note{Consumer: "c", Key: got[0].ID.String(), Retention: time.Hour, Lease: got[0].Lease()}, 0)
			require.False(t, duplicate)
			return err
		})
		require.NoError(t, commit())
		trips(1, "an ack", func(ctx context.Context) error { return s.Ack(ctx, "worker", []outmill.Lease{got[0].Lease()}) })
	}
}
