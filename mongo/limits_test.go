package mongo_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/storekit"
)

// limit is the largest size in bytes of a document at its append.
const limit = 16<<20 - 64<<10

// huge is a record whose document has at most that number of bytes: the store counts metadata twice.
func huge(bytes int) *outmill.Record {
	return &outmill.Record{
		Topic: "orders", Key: "key", MessageID: "huge", Payload: make([]byte, mongo.DefaultMaxPayload),
		Metadata: map[string]string{"rest": strings.Repeat("x", (bytes-mongo.DefaultMaxPayload)/2)},
	}
}

func TestStore_Limits(t *testing.T) {
	t.Parallel()

	t.Run("a document over the limit is refused before it is sent", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		var inserts atomic.Int64
		client := clientOf(t, options.Client().ApplyURI(mongotest.Server(t)).SetMonitor(&event.CommandMonitor{
			Started: func(_ context.Context, e *event.CommandStartedEvent) {
				if e.CommandName == "insert" {
					inserts.Add(1)
				}
			},
		}))
		store := newStore(t, client, mongo.Config{Database: s.db.Name()})
		for name, appends := range map[string]func(records ...*outmill.Record) error{
			"own": func(records ...*outmill.Record) error { return store.Append(t.Context(), records...) },
			"InTx": func(records ...*outmill.Record) error {
				return store.InTx(t.Context(), func(ctx context.Context) error { return store.Append(ctx, records...) })
			},
		} {
			for i, records := range [][]*outmill.Record{{huge(limit + 1<<10)}, {one("never"), huge(limit + 1<<10)}} {
				var refused *outmill.InvalidRecordError
				require.ErrorAs(t, appends(records...), &refused, name)
				require.Equal(t, i, refused.Index)
				require.Equal(t, "payload", refused.Field)
				require.Contains(t, refused.Reason, fmt.Sprint(limit), "the limit")
			}
		}
		require.Zero(t, inserts.Load())
		require.Empty(t, listed(t, s))

		err := store.Append(t.Context(), &outmill.Record{Topic: "orders", Payload: make([]byte, mongo.DefaultMaxPayload+1)})
		var refused *outmill.InvalidRecordError
		require.ErrorAs(t, err, &refused)
		require.Zero(t, inserts.Load())
	})

	// A record that could be appended and not settled would be delivered for ever.
	t.Run("a document just under the limit can be claimed and settled in every way", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{Retain: time.Hour})
		record := huge(limit - 2<<10)
		require.NoError(t, s.Append(t.Context(), record))
		const text = "\U0001F600"
		said := strings.Repeat(text, storekit.MaxErrorLength/len(text))
		require.Len(t, said, storekit.MaxErrorLength)
		for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic} {
			found := claimed(t, s, claimOf(outmill.NewOwnerToken(), 10, order, "orders"))
			require.Len(t, found, 1, order)
			require.Equal(t, record.Metadata, found[0].Metadata)
			require.NoError(t, s.Abandon(t.Context(), []outmill.Settlement{{Lease: found[0].Lease(), Err: said}}))
		}
		owner := outmill.NewOwnerToken()
		found := claimed(t, s, claimOf(owner, 1, outmill.OrderKey, "orders"))
		require.Equal(t, said, found[0].LastError)
		require.NoError(t, s.Fail(t.Context(), []outmill.Settlement{{Lease: found[0].Lease(), Err: said, Park: true}}))
		n, err := s.Requeue(t.Context(), found[0].ID)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		found = claimed(t, s, claimOf(owner, 1, outmill.OrderNone))
		require.Len(t, found, 1)
		require.NoError(t, s.Ack(t.Context(), "", leasesOf(found)))
		kept, err := s.Get(t.Context(), found[0].ID)
		require.NoError(t, err)
		require.Equal(t, outmill.StatusProcessed, kept.Status)
	})

	t.Run("one append accepts several documents just under the limit", func(t *testing.T) {
		testenv.Long(t, "documents that fill a call")
		t.Parallel()
		s := newStand(t, mongo.Config{})
		const n = 3
		var records []*outmill.Record
		for i := range n {
			one := huge(limit - 2<<10)
			one.Key = fmt.Sprint(i)
			records = append(records, one)
		}
		require.NoError(t, s.InTx(t.Context(), func(ctx context.Context) error { return s.Append(ctx, records...) }))
		for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey} {
			found := claimed(t, s, claimOf(outmill.NewOwnerToken(), 10, order, "orders"))
			require.Len(t, found, n)
			require.NoError(t, s.Release(t.Context(), leasesOf(found)))
		}
	})
}
