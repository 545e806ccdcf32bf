package mongo_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo"
)

// ofTenants appends n records of each tenant, each with a key of its own.
func (s stand) ofTenants(t *testing.T, store *mongo.Store, n int, tenants ...string) {
	t.Helper()
	var records []*outmill.Record
	for _, tenant := range tenants {
		for i := range n {
			records = append(records, &outmill.Record{Topic: "orders", Key: fmt.Sprint(tenant, i), TenantID: tenant})
		}
	}
	for some := range slices.Chunk(records, 1000) {
		require.NoError(t, store.Append(t.Context(), some...))
	}
}

// cost is the number of index entries and documents that the server reads for the queries of
// the commands.
func (s stand) cost(t *testing.T, commands []command) (total int64) {
	t.Helper()
	for _, c := range commands {
		for _, query := range c.asked(t) {
			p := explained(t, s.db, query)
			said := fmt.Sprintf("%s: %s\n%v by %v, %d keys, %d documents", c.doing, clipped(query), p.stages, p.indexes, p.keys, p.docs)
			require.NotContains(t, p.stages, "COLLSCAN", said)
			require.NotContains(t, p.stages, "SORT", said)
			total += max(p.keys, p.docs)
		}
	}
	return total
}

var fair = mongo.Config{FairTopics: []string{"orders"}}

func TestStore_Turns(t *testing.T) {
	t.Parallel()

	t.Run("a claim reads as much with a large backlog of one tenant as with a small one", func(t *testing.T) {
		t.Parallel()
		const limit = 20
		for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey} {
			var costs []int64
			for _, backlog := range []int{200, testenv.Steps(4_000, 100_000)} {
				s := newStand(t, mongo.Config{})
				store, kept := s.recorded(t, fair)
				s.ofTenants(t, store, backlog, "big")
				s.ofTenants(t, store, 10, "a", "b", "c", "d")
				claimed(t, store, claimOf(outmill.NewOwnerToken(), limit, order))
				var found []*outmill.Record
				kept.while("claim", func() { found = claimed(t, store, claimOf(outmill.NewOwnerToken(), limit, order)) })
				require.Len(t, found, limit)
				costs = append(costs, s.cost(t, kept.commands))
			}
			require.Less(t, costs[1], costs[0]+limit, "order %s", order)
			require.Less(t, costs[1], int64(20*limit), "order %s", order)
		}
	})

	t.Run("a claim reads as much of many tenants as of some", func(t *testing.T) {
		t.Parallel()
		const limit = 20
		for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey} {
			s := newStand(t, mongo.Config{})
			store, kept := s.recorded(t, fair)
			n := testenv.Steps(1_000, 10_000)
			tenants := make([]string, n)
			for i := range tenants {
				tenants[i] = fmt.Sprint("tenant-", i)
			}
			s.ofTenants(t, store, 1, tenants...)
			claimed(t, store, claimOf(outmill.NewOwnerToken(), limit, order))
			kept.while("claim", func() {
				require.Len(t, claimed(t, store, claimOf(outmill.NewOwnerToken(), limit, order)), limit)
			})
			require.Less(t, s.cost(t, kept.commands), int64(20*limit), "order %s", order)
		}
	})

	t.Run("each of many tenants with long ids is served once", func(t *testing.T) {
		t.Parallel()
		for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey} {
			s := newStand(t, mongo.Config{})
			store := s.second(t, mongotest.Server(t), fair)
			n := testenv.Steps(300, 10_000)
			tenants := make([]string, n)
			for i := range tenants {
				tenants[i] = strings.Repeat("é", 200) + fmt.Sprintf("%05d", i)
			}
			s.ofTenants(t, store, 1, tenants...)
			var served []string
			for len(served) < n {
				found := claimed(t, store, claimOf(outmill.NewOwnerToken(), 100, order))
				require.NotEmpty(t, found)
				for _, r := range found {
					served = append(served, r.TenantID)
				}
				require.NoError(t, store.Ack(t.Context(), "", leasesOf(found)))
			}
			slices.Sort(served)
			require.Equal(t, tenants, served)
		}
	})

	t.Run("the indexes of turns have only ready records of fair topics", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		store := s.second(t, mongotest.Server(t), fair)
		s.ofTenants(t, store, 3, "a")
		require.NoError(t, store.Append(t.Context(), &outmill.Record{Topic: "mail", Key: "k", TenantID: "a"}))
		require.Len(t, claimed(t, store, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone, "orders")), 1)
		for _, name := range []string{"turns", "turn_key"} {
			require.Equal(t, []string{"orders", "orders"}, s.inIndex(t, name), name)
		}
	})

	t.Run("a claim under the setting gives turns to a backlog from before, and loses nothing when it is turned off", func(t *testing.T) {
		t.Parallel()
		for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic} {
			s := newStand(t, mongo.Config{})
			store := s.second(t, mongotest.Server(t), fair)
			n := testenv.Steps(100, 2_500)
			s.ofTenants(t, s.Store, n, "a", "b")
			take := func(from *mongo.Store) (names []string) {
				found := claimed(t, from, claimOf(outmill.NewOwnerToken(), n, order))
				for _, r := range found {
					names = append(names, r.Key)
				}
				require.NoError(t, from.Ack(t.Context(), "", leasesOf(found)))
				return names
			}
			all := take(store)
			s.ofTenants(t, store, n, "c", "d")
			all = append(all, take(s.Store)...)
			s.ofTenants(t, s.Store, n, "e")
			for i := 0; len(all) < 5*n; i++ {
				found := take([]*mongo.Store{store, s.Store}[i%2])
				require.NotEmpty(t, found, "%d of %d in order %s", len(all), 5*n, order)
				all = append(all, found...)
			}
			slices.Sort(all)
			require.Len(t, slices.Compact(all), 5*n)
		}
	})
}

// inIndex returns the topics of the records that the index has.
func (s stand) inIndex(t *testing.T, name string) []string {
	t.Helper()
	var answer struct {
		Batch struct {
			First []struct {
				Topic string `bson:"topic"`
			} `bson:"firstBatch"`
		} `bson:"cursor"`
	}
	require.NoError(t, s.db.RunCommand(t.Context(), bson.D{
		{Key: "find", Value: "outmill_records"}, {Key: "filter", Value: bson.D{{Key: "stage", Value: -2}, {Key: "key", Value: bson.D{{Key: "$exists", Value: true}}}}},
		{Key: "hint", Value: name},
	}).Decode(&answer))
	var topics []string
	for _, f := range answer.Batch.First {
		topics = append(topics, f.Topic)
	}
	return topics
}
