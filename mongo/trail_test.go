package mongo_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/mongo"
)

// shortTurn is long enough to choose.
const shortTurn = 500 * time.Millisecond

// plenty returns n records of a topic, each with its own key.
func plenty(topic string, n int) []*outmill.Record {
	records := made(topic, topic, n)
	for i, r := range records {
		r.Key = fmt.Sprint("key", i)
	}
	return records
}

func TestStore_Trail(t *testing.T) {
	t.Parallel()

	// The smallest of several results counts, because on a busy machine the store's short-lived
	// notes expire.
	t.Run("a claim in a series and its ack take few round trips", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		store, kept := s.recorded(t, mongo.Config{})
		for order, bound := range map[outmill.Order]int{outmill.OrderNone: 3, outmill.OrderKey: 6, outmill.OrderTopic: 6} {
			topic := "order " + order.String()
			require.NoError(t, store.Append(t.Context(), plenty(topic, 800)...))
			owner, fewest := outmill.NewOwnerToken(), 100
			for range 16 {
				fewest = min(fewest, rounds(t, kept, func() error {
					found, err := store.Claim(t.Context(), claimOf(owner, 50, order, topic))
					require.Len(t, found, 50)
					require.NoError(t, err)
					return store.Ack(t.Context(), "", leasesOf(found))
				}))
			}
			require.LessOrEqual(t, fewest, bound, "order %s", order)
		}
		require.Empty(t, listed(t, store))
	})

	// Between a claim's choice and its write, another process claims the same records.
	t.Run("a claim whose records others took takes later ones and starts elsewhere the next time", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		require.NoError(t, s.Append(t.Context(), plenty("orders", 600)...))
		var once sync.Once
		var skips []int64
		store := s.watched(t, mongo.Config{}, func(e *event.CommandStartedEvent) {
			if at, _ := e.Command.Lookup("update").StringValueOK(); at == "outmill_records" {
				once.Do(func() { require.Len(t, claimed(t, s, claimOf(outmill.NewOwnerToken(), 20, outmill.OrderNone)), 20) })
			}
			if skip, err := e.Command.LookupErr("pipeline", "2", "$unionWith", "pipeline", "2", "$skip"); err == nil {
				skips = append(skips, skip.AsInt64())
			}
		})
		owner := outmill.NewOwnerToken()
		seen := map[string]bool{}
		for len(seen) < 580 {
			found := claimed(t, store, claimOf(owner, 30, outmill.OrderNone))
			require.NotEmpty(t, found)
			for _, r := range found {
				require.False(t, seen[r.MessageID], "%s came twice", r.MessageID)
				seen[r.MessageID] = true
			}
		}
		require.Empty(t, claimed(t, store, claimOf(owner, 30, outmill.OrderNone)), "nothing was skipped for good")
		require.LessOrEqual(t, len(skips), 1, "one miss has one skip")
	})

	// A record that was given back is before the place where claims without an order continue.
	t.Run("a record that is given back behind a reader is claimed while others are ready", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		other := s.watched(t, mongo.Config{}, func(*event.CommandStartedEvent) {})
		require.NoError(t, s.Append(t.Context(), plenty("orders", 200)...))
		first := claimed(t, other, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone))
		owner := outmill.NewOwnerToken()
		require.Len(t, claimed(t, s, claimOf(owner, 10, outmill.OrderNone)), 10)
		require.NoError(t, other.Release(t.Context(), leasesOf(first)))
		came := 0
		for range 25 {
			for _, r := range claimed(t, s, claimOf(owner, 10, outmill.OrderNone)) {
				if r.ID == first[0].ID {
					came++
				}
			}
		}
		require.Equal(t, 1, came, "by the end of the line at the latest")
	})

	// A process that dies during a claim keeps the turn until its end, and not longer.
	t.Run("a topic is free when an abandoned turn ends", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		require.NoError(t, s.Append(t.Context(), keyed("key", "one")...))
		gone := bson.D{{Key: "_id", Value: bson.D{{Key: "grp", Value: readers}, {Key: "topic", Value: "orders"}}},
			{Key: "token", Value: bson.Binary{Subtype: bson.TypeBinaryUUID, Data: make([]byte, 16)}},
			{Key: "until", Value: time.Now().Add(time.Hour)}}
		locks := s.db.Collection("outmill_locks")
		_, err := locks.InsertOne(t.Context(), gone)
		require.NoError(t, err)
		require.Empty(t, claimed(t, s, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey)))
		ends := bson.D{{Key: "$set", Value: bson.D{{Key: "until", Value: time.Now().Add(shortTurn)}}}}
		_, err = locks.UpdateOne(t.Context(), bson.D{}, ends)
		require.NoError(t, err)
		require.True(t, eventually(t.Context(), patience, func() bool {
			return len(claimed(t, s, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey))) == 1
		}))
	})

	t.Run("a claim in order with too few ready records searches for due ones", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		late := one("late")
		late.Delay = time.Hour
		require.NoError(t, s.Append(t.Context(), one("first"), late))
		owner := outmill.NewOwnerToken()
		require.Equal(t, []string{"first"}, namesOf(claimed(t, s, claimOf(owner, 1, outmill.OrderNone, "orders"))))
		s.comeDue(t, "late")
		require.Equal(t, []string{"late"}, namesOf(claimed(t, s, claimOf(owner, 1, outmill.OrderKey))),
			"of all topics, which it has not claimed before")
	})

	t.Run("a record that was appended after another became due does not come before it", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		late := one("late")
		late.Delay = time.Hour
		require.NoError(t, s.Append(t.Context(), plenty("orders", 40)...))
		require.NoError(t, s.Append(t.Context(), late))
		owner := outmill.NewOwnerToken()
		next := func(limit int) []string {
			found := claimed(t, s, claimOf(owner, limit, outmill.OrderTopic, "orders"))
			require.NoError(t, s.Ack(t.Context(), "", leasesOf(found)))
			return namesOf(found)
		}
		require.Len(t, next(2), 2, "the line goes on behind what was read")
		s.comeDue(t, "late")
		require.NoError(t, s.Append(t.Context(), one("new")))
		require.NoError(t, s.Append(t.Context(), plenty("orders", 40)...))
		order := next(50)
		require.Len(t, order, 50)
		require.Contains(t, order, "late")
		require.Less(t, slices.Index(order, "late"), slices.Index(order, "new"))
	})
}

// comeDue makes a delayed record due, and notifies no store.
func (s stand) comeDue(t *testing.T, name string) {
	t.Helper()
	past := time.Now().Add(-time.Minute)
	result, err := s.records().UpdateOne(t.Context(), bson.D{{Key: "message_id", Value: name}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "available_at", Value: past}, {Key: "next_at", Value: past}}}})
	require.NoError(t, err)
	require.EqualValues(t, 1, result.ModifiedCount)
}
