package mongo_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

var acme = roles.PauseScope{TenantID: "acme"}

// ofTenant is a record of the tenant acme.
func ofTenant(key, name string) *outmill.Record {
	return &outmill.Record{Topic: "orders", Key: key, MessageID: name, TenantID: acme.TenantID}
}

func paused(t *testing.T, store *mongo.Store, scope roles.PauseScope) {
	t.Helper()
	require.NoError(t, store.Pause(t.Context(), scope, "ann", ""))
}

func resumed(t *testing.T, store *mongo.Store, scope roles.PauseScope) {
	t.Helper()
	ended, err := store.Resume(t.Context(), scope)
	require.NoError(t, err)
	require.True(t, ended)
}

// inStage counts the records in a stage.
func (s stand) inStage(t *testing.T, stage int) int {
	t.Helper()
	n, err := s.records().CountDocuments(t.Context(), bson.D{{Key: "stage", Value: stage}})
	require.NoError(t, err)
	return int(n)
}

// lanes counts the lanes.
func (s stand) lanes(t *testing.T) int {
	t.Helper()
	n, err := s.db.Collection("outmill_lanes").CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	return int(n)
}

// drain claims and acks until a claim returns nothing, and returns the names in their order.
func drain(t *testing.T, store *mongo.Store, req outmill.ClaimRequest) (names []string) {
	t.Helper()
	for {
		found := claimed(t, store, req)
		if len(found) == 0 {
			return names
		}
		require.NoError(t, store.Ack(t.Context(), "", leasesOf(found)))
		names = append(names, namesOf(found)...)
	}
}

func TestStore_PausedBacklog(t *testing.T) {
	t.Parallel()
	n := testenv.Steps(4_000, 10_000)
	for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey} {
		t.Run(fmt.Sprintf("paused records are set aside once, and then cost a claim in order %s nothing", order), func(t *testing.T) {
			t.Parallel()
			requireBoundedPause(t, n, order)
		})
	}
}

func requireBoundedPause(t *testing.T, n int, order outmill.Order) {
	t.Helper()
	s := newStand(t, mongo.Config{})
	for i := 0; i < n; i += 1000 {
		records := make([]*outmill.Record, 1000)
		for j := range records {
			records[j] = ofTenant([]string{"", "hot", fmt.Sprint("key", j)}[j%3], fmt.Sprint(i+j))
		}
		require.NoError(t, s.Append(t.Context(), records...))
	}
	require.NoError(t, s.Append(t.Context(), made("orders", "other", 30)...))
	store, kept := s.recorded(t, mongo.Config{})
	mongo.SetTurn(store, patience)
	paused(t, s.Store, acme)
	req := claimOf(outmill.NewOwnerToken(), 10, order, "orders")
	req.Lease = time.Hour

	// A claim sets aside a thousand records or so at once, until it finds some of another tenant.
	trips := kept.while("first", func() { require.NotEmpty(t, claimed(t, store, req)) })
	require.Greater(t, s.inStage(t, storekit.StageAside)+s.inStage(t, storekit.StageHeld), n-2000)
	require.LessOrEqual(t, trips, 100+n/50, "commands of the first claim")

	for len(claimed(t, store, req)) > 0 {
	}
	for range 3 {
		begin := len(kept.commands)
		kept.while("under the pause", func() { require.Empty(t, claimed(t, store, req)) })
		for _, c := range kept.commands[begin:] {
			require.False(t, c.name == "update" && c.body.Lookup("update").StringValue() == "outmill_records", "%s", c.body)
		}
	}

	resumed(t, s.Store, acme)
	for range 3 {
		before := s.inStage(t, storekit.StageAside)
		trips := kept.while("after Resume", func() { require.Len(t, claimed(t, store, req), 10) })
		require.LessOrEqual(t, trips, 30)
		require.LessOrEqual(t, before-s.inStage(t, storekit.StageAside), 1000)
	}
}

func TestStore_Pauses(t *testing.T) {
	t.Parallel()

	t.Run("a claim makes no more round trips because another topic is paused", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		paused(t, s.Store, roles.PauseScope{Topic: "others"})
		paused(t, s.Store, acme)
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
	})

	t.Run("Extend makes no more round trips than two, and learns of a pause", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		store, kept := s.recorded(t, mongo.Config{})
		require.NoError(t, s.Append(t.Context(), one("m")))
		found := claimed(t, store, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone))
		paused(t, s.Store, acme)
		extend := func() error {
			standing, err := store.Extend(t.Context(), time.Hour, leasesOf(found))
			require.Len(t, standing, 1)
			return err
		}
		require.Equal(t, 3, rounds(t, kept, extend), "the third reads the pauses")
		require.True(t, store.LastPauses().HasTenants())
		require.Equal(t, 2, rounds(t, kept, extend))
	})

	// The last claim was full, so the next one does not search for topics, and starts behind it.
	t.Run("a claim in a series sees a pause of the topic that another process made", func(t *testing.T) {
		t.Parallel()
		for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic} {
			for _, scope := range []roles.PauseScope{{Topic: "orders"}, {Group: readers}, acme} {
				s := newStand(t, mongo.Config{})
				other := s.watched(t, mongo.Config{}, func(*event.CommandStartedEvent) {})
				records := plenty("orders", 200)
				for _, r := range records {
					r.TenantID = acme.TenantID
				}
				require.NoError(t, s.Append(t.Context(), records...))
				req := claimOf(outmill.NewOwnerToken(), 10, order, "orders")
				req.MaxBytes = 60 // the read ends before the last part of the command
				for range 3 {
					require.NotEmpty(t, claimed(t, s, req))
				}
				paused(t, other, scope)
				require.Empty(t, claimed(t, s, req), "order %s, %s", order, scope)
				resumed(t, other, scope)
				require.NotEmpty(t, claimed(t, s, req), "order %s, %s", order, scope)
			}
		}
	})

	t.Run("what a claim sets aside for a pause that has just ended comes back", func(t *testing.T) {
		t.Parallel()
		for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey} {
			for _, key := range []string{"", "key"} {
				s := newStand(t, mongo.Config{})
				require.NoError(t, s.Append(t.Context(), ofTenant(key, "m1"), ofTenant(key, "m2")))
				paused(t, s.Store, acme)
				// The claim has read the pauses, and is about to write what it decided.
				late := s.interrupted(t, "update", "records", func() { resumed(t, s.Store, acme) })
				var got []string
				for range 2 {
					got = append(got, namesOf(claimed(t, late, claimOf(outmill.NewOwnerToken(), 10, order, "orders")))...)
				}
				require.Equal(t, []string{"m1", "m2"}, got)
				require.Zero(t, s.inStage(t, storekit.StageAside)+s.inStage(t, storekit.StageHeld)+s.lanes(t))
			}
		}
	})

	// A failover undoes what a majority has not written. Another process may have read it before.
	t.Run("a pause that a failover has undone is forgotten", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		require.NoError(t, s.Append(t.Context(), one("m")))
		meta := s.db.Collection("outmill_meta")
		req := claimOf(outmill.NewOwnerToken(), 10, outmill.OrderNone)
		paused(t, s.Store, roles.PauseScope{Topic: "others"})
		before, err := meta.FindOne(t.Context(), bson.D{{Key: "_id", Value: "pauses"}}).Raw()
		require.NoError(t, err)
		paused(t, s.Store, roles.PauseScope{Topic: "orders"})
		require.Empty(t, claimed(t, s, req))
		undone := s.LastPauses().Generation()
		_, err = meta.ReplaceOne(t.Context(), bson.D{{Key: "_id", Value: "pauses"}}, before)
		require.NoError(t, err)
		found := claimed(t, s, req)
		require.Equal(t, []string{"m"}, namesOf(found))
		require.False(t, s.LastPauses().Covers(found[0]))
		require.Less(t, s.LastPauses().Generation(), undone)

		// The other process has not read the list in between.
		other := s.watched(t, mongo.Config{}, func(*event.CommandStartedEvent) {})
		paused(t, other, roles.PauseScope{Topic: "late"})
		list, err := other.Paused(t.Context())
		require.NoError(t, err)
		for _, p := range list {
			require.NotEqual(t, undone, p.Number)
		}
	})

	t.Run("two processes that pause at the same time both pause", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		var begun sync.WaitGroup
		for i := range 8 {
			begun.Go(func() {
				store := s.watched(t, mongo.Config{}, func(*event.CommandStartedEvent) {})
				paused(t, store, roles.PauseScope{Topic: fmt.Sprint(i)})
				if i%2 == 0 {
					resumed(t, store, roles.PauseScope{Topic: fmt.Sprint(i)})
				}
			})
		}
		begun.Wait()
		list, err := s.Paused(t.Context())
		require.NoError(t, err)
		require.Len(t, list, 4)
		numbers := map[int64]bool{}
		for _, p := range list {
			numbers[p.Number] = true
		}
		require.Len(t, numbers, 4)
	})
}

func TestStore_PausesOfKeys(t *testing.T) {
	t.Parallel()

	// A lane that a pause blocks is checked seldom, so the pause must not get the lane of k2.
	t.Run("a paused record at the end of a key does not stop the records before it", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		require.NoError(t, s.Append(t.Context(), keyed("key", "k1", "k2")...))
		owner := outmill.NewOwnerToken()
		first := claimed(t, s, claimOf(owner, 1, outmill.OrderKey))
		require.Empty(t, claimed(t, s, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey)), "k2 is held")
		require.NoError(t, s.Append(t.Context(), ofTenant("key", "k3")))
		paused(t, s.Store, acme)
		require.Empty(t, claimed(t, s, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey)), "k3 is held")
		// The note about the end of the lease is lost.
		require.NoError(t, s.Ack(t.Context(), "", leasesOf(first)))
		_, err := s.db.Collection("outmill_openings").DeleteMany(t.Context(), bson.D{})
		require.NoError(t, err)
		require.True(t, eventually(t.Context(), patience, func() bool {
			return len(claimed(t, s, claimOf(owner, 10, outmill.OrderKey))) == 1
		}), "k2 comes when its lane is checked")
		resumed(t, s.Store, acme)
		require.Equal(t, []string{"k3"}, namesOf(claimed(t, s, claimOf(owner, 10, outmill.OrderKey))))
	})

	t.Run("a paused record that is deleted holds its key no longer", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		require.NoError(t, s.Append(t.Context(), ofTenant("key", "k1")))
		require.NoError(t, s.Append(t.Context(), keyed("key", "k2")...))
		paused(t, s.Store, acme)
		req := claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey)
		require.Empty(t, claimed(t, s, req))
		list, err := s.List(t.Context(), outmill.ListQuery{TenantID: acme.TenantID})
		require.NoError(t, err)
		_, err = s.Delete(t.Context(), list[0].ID)
		require.NoError(t, err)
		require.Equal(t, []string{"k2"}, namesOf(claimed(t, s, req)))
	})

	t.Run("a paused record that is deleted holds its key no longer, although the note about it is lost", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		require.NoError(t, s.Append(t.Context(), ofTenant("key", "k1")))
		require.NoError(t, s.Append(t.Context(), keyed("key", "k2")...))
		paused(t, s.Store, acme)
		req := claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey)
		require.Empty(t, claimed(t, s, req))
		list, err := s.List(t.Context(), outmill.ListQuery{TenantID: acme.TenantID})
		require.NoError(t, err)
		_, err = s.Delete(t.Context(), list[0].ID)
		require.NoError(t, err)
		// The process that deleted it has crashed before it wrote the note.
		_, err = s.db.Collection("outmill_openings").DeleteMany(t.Context(), bson.D{})
		require.NoError(t, err)
		require.True(t, eventually(t.Context(), 20*time.Second, func() bool {
			return len(claimed(t, s, req)) == 1
		}), "k2 comes when its lane is checked")
	})

	t.Run("readers that change to an order get what was aside in its order", func(t *testing.T) {
		t.Parallel()
		for _, order := range []outmill.Order{outmill.OrderKey, outmill.OrderTopic} {
			s := newStand(t, mongo.Config{})
			owner := outmill.NewOwnerToken()
			require.NoError(t, s.Append(t.Context(), ofTenant("key", "k1")))
			require.NoError(t, s.Append(t.Context(), keyed("key", "k2")...))
			paused(t, s.Store, acme)
			require.Equal(t, []string{"k2"}, namesOf(claimed(t, s, claimOf(owner, 10, outmill.OrderNone))))
			require.NoError(t, s.Append(t.Context(), keyed("key", "k3")...))
			require.Empty(t, claimed(t, s, claimOf(owner, 10, order)), "k1 is before k3 again, in order %s", order)
			require.Zero(t, s.inStage(t, storekit.StageAside))
			resumed(t, s.Store, acme)
			require.Equal(t, []string{"k1", "k3"}, namesOf(claimed(t, s, claimOf(owner, 10, order))))
		}
	})

	// A claim brings back only some records, and must not hand out what is behind the others.
	t.Run("a key keeps its order while claims bring its records back", func(t *testing.T) {
		t.Parallel()
		for _, order := range []outmill.Order{outmill.OrderKey, outmill.OrderTopic} {
			s := newStand(t, mongo.Config{})
			mongo.SetAsideAtOnce(s.Store, 2)
			var want []*outmill.Record
			for i := range 9 {
				want = append(want, ofTenant("key", fmt.Sprint("k", i)))
			}
			require.NoError(t, s.Append(t.Context(), want...))
			paused(t, s.Store, acme)
			for range 3 {
				require.Empty(t, claimed(t, s, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderNone)))
			}
			require.Equal(t, 9, s.inStage(t, storekit.StageAside))
			late := keyed("key", "late")
			require.NoError(t, s.Append(t.Context(), late...))
			resumed(t, s.Store, acme)
			var got []string
			for range 50 {
				found := claimed(t, s, claimOf(outmill.NewOwnerToken(), 2, order))
				require.NoError(t, s.Ack(t.Context(), "", leasesOf(found)))
				got = append(got, namesOf(found)...)
				if len(got) > 9 {
					break
				}
			}
			require.Equal(t, append(namesOf(want), "late"), got, "order %s", order)
			require.Zero(t, s.inStage(t, storekit.StageAside)+s.lanes(t))
		}
	})

	t.Run("readers with and without an order lose no record under pauses", func(t *testing.T) {
		testenv.Long(t, "readers beside pauses that come and go")
		t.Parallel()
		s := newStand(t, mongo.Config{})
		var want []*outmill.Record
		for i := range 60 {
			r := ofTenant(fmt.Sprint("key", i%4), fmt.Sprint(i))
			if i%3 == 0 {
				r.TenantID = "others"
			}
			want = append(want, r)
		}
		require.NoError(t, s.Append(t.Context(), want...))
		var got []string
		for i := 0; len(got) < len(want) && i < 200; i++ {
			if i%5 == 0 {
				paused(t, s.Store, acme)
			}
			for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic} {
				found := claimed(t, s, claimOf(outmill.NewOwnerToken(), 2, order))
				if i%2 == 0 {
					require.NoError(t, s.Release(t.Context(), leasesOf(found)))
					continue
				}
				require.NoError(t, s.Ack(t.Context(), "", leasesOf(found)))
				got = append(got, namesOf(found)...)
			}
			if i%5 == 3 {
				resumed(t, s.Store, acme)
			}
		}
		require.ElementsMatch(t, namesOf(want), got)
	})

	t.Run("a group that is dropped under a pause leaves no lane", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		require.NoError(t, s.Append(t.Context(), ofTenant("key", "k1"), ofTenant("", "k2")))
		paused(t, s.Store, acme)
		require.Empty(t, claimed(t, s, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey)))
		require.Equal(t, 1, s.lanes(t))
		dropped, err := s.DropGroup(t.Context(), readers)
		require.NoError(t, err)
		require.Equal(t, outmill.Dropped{GivenBack: 2}, dropped)
		require.Zero(t, s.lanes(t))
		resumed(t, s.Store, acme)
		require.NoError(t, s.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
		require.NoError(t, s.Append(t.Context(), keyed("key", "k3")...))
		require.Equal(t, []string{"k1", "k2", "k3"}, drain(t, s.Store, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey)))
	})

	t.Run("paused records of a registration that ends are deleted", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		brief := outmill.Registration{Group: "brief", Worker: "w", TTL: time.Millisecond, Topics: outmill.Topics{Include: []string{"orders"}}}
		require.NoError(t, s.RegisterGroup(t.Context(), brief))
		require.NoError(t, s.Append(t.Context(), ofTenant("", "m1"), ofTenant("key", "m2")))
		paused(t, s.Store, acme)
		for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey} {
			req := claimOf(outmill.NewOwnerToken(), 10, order, "orders")
			req.Group = brief.Group
			require.Empty(t, claimed(t, s, req))
		}
		require.True(t, eventually(t.Context(), patience, func() bool {
			_, records, err := s.ExpireRegistrations(t.Context(), 10)
			require.NoError(t, err)
			return records == 2
		}))
	})

	t.Run("a record that goes dead under a pause keeps no number", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		brief := ofTenant("", "brief")
		brief.TimeToLive = time.Hour
		require.NoError(t, s.Append(t.Context(), brief))
		paused(t, s.Store, acme)
		require.Empty(t, claimed(t, s, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderNone)))
		require.Equal(t, 1, s.inStage(t, storekit.StageAside))
		s.moved(t, "expires_at", bson.D{})
		expired, err := s.ExpireDue(t.Context(), 10)
		require.NoError(t, err)
		require.Equal(t, 1, expired)
		n, err := s.records().CountDocuments(t.Context(), bson.D{{Key: "paused_by", Value: bson.D{{Key: "$exists", Value: true}}}})
		require.NoError(t, err)
		require.Zero(t, n)
	})
}
