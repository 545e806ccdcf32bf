package mongo_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"golang.org/x/sync/errgroup"

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
		for range n {
			records = append(records, &outmill.Record{Topic: "orders", Key: outmill.NewWorkItemID().String(), TenantID: tenant})
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

	orders := []outmill.Order{outmill.OrderNone, outmill.OrderKey}

	t.Run("a claim reads as much with a large backlog of one tenant as with a small one", func(t *testing.T) {
		t.Parallel()
		const limit = 20
		s := newStand(t, mongo.Config{})
		store, kept := s.recorded(t, fair)
		costs := map[outmill.Order][]int64{}
		for _, backlog := range []int{200, testenv.Steps(2_000, 20_000)} {
			s.ofTenants(t, store, backlog, "big")
			s.ofTenants(t, store, 20, "a", "b", "c", "d")
			for _, order := range orders {
				// The first claim learns how many tenants there are.
				claimed(t, store, claimOf(outmill.NewOwnerToken(), limit, order))
				before := len(kept.commands)
				kept.while("claim", func() { require.Len(t, claimed(t, store, claimOf(outmill.NewOwnerToken(), limit, order)), limit) })
				costs[order] = append(costs[order], s.cost(t, kept.commands[before:]))
			}
		}
		for _, order := range orders {
			require.Less(t, costs[order][1], costs[order][0]+limit, "order %s", order)
			require.Less(t, costs[order][1], int64(20*limit), "order %s", order)
		}
	})

	t.Run("a claim reads as much of many tenants as of some", func(t *testing.T) {
		t.Parallel()
		const limit = 20
		s := newStand(t, mongo.Config{})
		store, kept := s.recorded(t, fair)
		tenants := make([]string, testenv.Steps(1_000, 5_000))
		for i := range tenants {
			tenants[i] = fmt.Sprint("tenant-", i)
		}
		s.ofTenants(t, store, 1, tenants...)
		for _, order := range orders {
			claimed(t, store, claimOf(outmill.NewOwnerToken(), limit, order))
			before := len(kept.commands)
			kept.while("claim", func() { require.Len(t, claimed(t, store, claimOf(outmill.NewOwnerToken(), limit, order)), limit) })
			require.Less(t, s.cost(t, kept.commands[before:]), int64(20*limit), "order %s", order)
		}
	})

	t.Run("each of many tenants with long ids is served once", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		store := s.second(t, mongotest.Server(t), fair)
		tenants := make([]string, testenv.Steps(300, 2_000))
		for i := range tenants {
			tenants[i] = strings.Repeat("é", 200) + fmt.Sprintf("%05d", i)
		}
		for _, order := range orders {
			s.ofTenants(t, store, 1, tenants...)
			var served []string
			for len(served) < len(tenants) {
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
		testenv.Long(t, "a store whose setting changes again and again on MongoDB")
		for _, order := range append(orders, outmill.OrderTopic) {
			s := newStand(t, mongo.Config{})
			store := s.second(t, mongotest.Server(t), fair)
			for _, of := range []*mongo.Store{store, s.Store} {
				mongo.SetAtOnce(of, 100)
			}
			n := 250
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

func TestStore_TurnsInterrupted(t *testing.T) {
	t.Parallel()

	t.Run("interrupted claims with the setting and without it lose no record and keep the order of each key", func(t *testing.T) {
		t.Parallel()
		testenv.Long(t, "interrupted claims that serve turns on MongoDB")
		s := newStand(t, mongo.Config{})
		stores := []*mongo.Store{
			s.second(t, mongotest.Server(t), fair), s.second(t, mongotest.Server(t), fair), s.second(t, mongotest.Server(t), mongo.Config{}),
		}
		want := map[string][]string{}
		n := 40
		for i := range n {
			r := &outmill.Record{
				Topic: "orders", Key: fmt.Sprint("k", i%4), TenantID: fmt.Sprint("t", rand.IntN(5)), MessageID: fmt.Sprintf("m%03d", i),
			}
			want[r.Key] = append(want[r.Key], r.MessageID)
			require.NoError(t, stores[i%len(stores)].Append(t.Context(), r))
		}
		var mu sync.Mutex
		got, acked := map[string][]string{}, 0
		var workers errgroup.Group
		for _, store := range stores {
			mongo.SetAtOnce(store, 3)
			mongo.SetTurn(store, patience)
			workers.Go(func() error {
				owner := outmill.NewOwnerToken()
				for done := false; !done; {
					found, err := interrupted(t, store, claimOf(owner, 1+rand.IntN(9), outmill.OrderKey))
					if err != nil {
						return err
					}
					cut := rand.IntN(len(found) + 1)
					mu.Lock()
					for _, r := range found[:cut] {
						got[r.Key] = append(got[r.Key], r.MessageID)
					}
					acked += cut
					done = acked == n
					mu.Unlock()
					err = errors.Join(store.Ack(t.Context(), "", leasesOf(found[:cut])), store.Release(t.Context(), leasesOf(found[cut:])))
					if err != nil {
						return err
					}
				}
				return nil
			})
		}
		require.NoError(t, workers.Wait())
		require.Equal(t, want, got)
	})
}

// interrupted claims, and often ends the context of the claim.
func interrupted(t *testing.T, store *mongo.Store, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	t.Helper()
	ctx, cancel := t.Context(), context.CancelFunc(func() {})
	if rand.IntN(2) == 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.IntN(60))*time.Millisecond)
	}
	defer cancel()
	found, err := store.Claim(ctx, req)
	if ctx.Err() != nil || driver.IsTimeout(err) {
		err = nil
	}
	return found, err
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
		{Key: "find", Value: "outmill_records"}, {Key: "hint", Value: name},
		{Key: "filter", Value: bson.D{{Key: "stage", Value: mongo.StageInTurn}, {Key: "key", Value: bson.D{{Key: "$exists", Value: true}}}}},
	}).Decode(&answer))
	var topics []string
	for _, f := range answer.Batch.First {
		topics = append(topics, f.Topic)
	}
	return topics
}
