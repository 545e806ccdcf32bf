package mongo_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo"
)

// described returns all indexes of the database's collections, in a form that can be compared,
// and the collections that have no indexes.
func described(t *testing.T, db *driver.Database) []string {
	t.Helper()
	names, err := db.ListCollectionNames(t.Context(), bson.D{})
	require.NoError(t, err)
	list := []string{}
	for _, name := range names {
		list = append(list, name)
		for _, spec := range indexesOf(t, db.Collection(name)) {
			list = append(list, fmt.Sprintf("%s %v %v %v %v", name, spec.Name, spec.Keys, spec.Partial, spec.After))
		}
	}
	slices.Sort(list)
	return list
}

type indexSpec struct {
	Name    string `bson:"name"`
	Keys    bson.D `bson:"key"`
	Partial bson.D `bson:"partialFilterExpression"`
	After   int64  `bson:"expireAfterSeconds"`
}

func indexesOf(t *testing.T, in *driver.Collection) map[string]indexSpec {
	t.Helper()
	cursor, err := in.Indexes().List(t.Context())
	require.NoError(t, err)
	var list []indexSpec
	require.NoError(t, cursor.All(t.Context(), &list))
	found := map[string]indexSpec{}
	for _, spec := range list {
		found[spec.Name] = spec
	}
	return found
}

func TestStore_Schema(t *testing.T) {
	t.Parallel()

	t.Run("Ensure changes nothing in a complete schema", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{Retain: time.Hour})
		require.NoError(t, s.Append(t.Context(), once("one", "key")))
		before := described(t, s.db)
		require.Greater(t, len(before), 12)
		for range 2 {
			require.NoError(t, s.Ensure(t.Context()))
			require.Equal(t, before, described(t, s.db))
		}
		require.Equal(t, []string{"one"}, listed(t, s))
		groups, err := s.Groups(t.Context())
		require.NoError(t, err)
		require.Len(t, groups, 1)
	})

	t.Run("Ensure makes a dropped index again", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{Retain: time.Hour})
		before := described(t, s.db)
		names, err := s.db.ListCollectionNames(t.Context(), bson.D{})
		require.NoError(t, err)
		for _, name := range names {
			require.NoError(t, s.db.Collection(name).Indexes().DropAll(t.Context()))
		}
		require.NotEqual(t, before, described(t, s.db))
		require.NoError(t, s.db.Collection("outmill_locks").Drop(t.Context()))
		require.NoError(t, s.Ensure(t.Context()))
		require.Equal(t, before, described(t, s.db))
	})

	t.Run("the schema does not depend on the retention", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		before := described(t, s.db)
		require.Contains(t, indexesOf(t, s.records()), "delete_at")
		for _, retain := range []time.Duration{time.Hour, 1500 * time.Millisecond, 1 << 62} {
			store := newStore(t, s.Client(), mongo.Config{Database: s.db.Name(), Retain: retain})
			require.NoError(t, store.Ensure(t.Context()))
			require.Equal(t, before, described(t, s.db))
			require.Equal(t, s.Statements(), store.Statements())
		}
	})

	// A store that is opened with another Retain calls no Ensure here.
	t.Run("a changed retention applies to later acks", func(t *testing.T) {
		t.Parallel()
		server := mongotest.Own(t)
		client := clientOf(t, options.Client().ApplyURI(server.URL))
		s := newStandIn(t, client.Database("test"), mongo.Config{Retain: time.Second})
		raised := newStore(t, client, mongo.Config{Database: "test", Retain: time.Hour})
		lowered := newStore(t, client, mongo.Config{Database: "test", Retain: time.Second})
		none := newStore(t, client, mongo.Config{Database: "test"})
		acked := func(by outmill.Store, name string) {
			require.NoError(t, by.Append(t.Context(), one(name)))
			require.NoError(t, by.Ack(t.Context(), "", leasesOf(claimed(t, by, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone)))))
		}
		acked(raised, "for an hour")
		require.True(t, eventually(t.Context(), patience, func() bool {
			// The first store keeps its records for longer than a second, so they stay.
			n, err := s.DeleteProcessed(t.Context(), 10)
			require.NoError(t, err)
			require.Zero(t, n)
			found, err := s.List(t.Context(), outmill.ListQuery{})
			require.NoError(t, err)
			require.Len(t, found, 1)
			return time.Since(found[0].ProcessedAt) > 1500*time.Millisecond
		}))
		acked(none, "not at all")
		acked(lowered, "for a second")
		require.Equal(t, []string{"for a second", "for an hour"}, listed(t, s))
		require.True(t, eventually(t.Context(), patience, func() bool {
			n, err := raised.DeleteProcessed(t.Context(), 10)
			require.NoError(t, err)
			return n == 1
		}), "the janitor goes by the same time")

		acked(lowered, "for a second, and no janitor")
		for _, parameter := range []bson.E{{Key: "ttlMonitorSleepSecs", Value: 1}, {Key: "ttlMonitorEnabled", Value: true}} {
			require.NoError(t, client.Database("admin").RunCommand(t.Context(), bson.D{{Key: "setParameter", Value: 1}, parameter}).Err())
		}
		require.True(t, eventually(t.Context(), 2*patience, func() bool { return len(listed(t, s)) == 1 }), "%q", listed(t, s))
		require.Equal(t, []string{"for an hour"}, listed(t, s))
	})

	t.Run("an index with another definition is reported and not changed", func(t *testing.T) {
		t.Parallel()
		ttl := int32(5)
		for name, model := range map[string]driver.IndexModel{
			"other keys": {Keys: bson.D{{Key: "mine", Value: 1}}, Options: options.Index().SetName("later")},
			"other order": {Keys: bson.D{{Key: "grp", Value: 1}, {Key: "stage", Value: 1}, {Key: "topic", Value: 1},
				{Key: "available_at", Value: -1}},
				Options: options.Index().SetName("later").SetPartialFilterExpression(bson.D{{Key: "available_at",
					Value: bson.D{{Key: "$exists", Value: true}}}})},
			"not partial": {Keys: bson.D{{Key: "grp", Value: 1}, {Key: "stage", Value: 1}, {Key: "topic", Value: 1},
				{Key: "available_at", Value: 1}}, Options: options.Index().SetName("later")},
			"deletes": {Keys: bson.D{{Key: "available_at", Value: 1}},
				Options: options.Index().SetName("leases").SetExpireAfterSeconds(ttl).SetPartialFilterExpression(bson.D{{Key: "owner",
					Value: bson.D{{Key: "$exists", Value: true}}}})},
			"does not delete": {Keys: bson.D{{Key: "delete_at", Value: 1}},
				Options: options.Index().SetName("delete_at").SetPartialFilterExpression(bson.D{{Key: "delete_at",
					Value: bson.D{{Key: "$exists", Value: true}}}})},
			"the same under another name": {Keys: bson.D{{Key: "grp", Value: 1}, {Key: "stage", Value: 1}, {Key: "topic", Value: 1},
				{Key: "seq", Value: 1}}, Options: options.Index().SetName("mine")},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				db := mongotest.Database(t)
				_, err := db.Collection("outmill_records").Indexes().CreateOne(t.Context(), model)
				require.NoError(t, err)
				before := indexesOf(t, db.Collection("outmill_records"))
				store := newStore(t, db.Client(), mongo.Config{Database: db.Name(), Retain: time.Hour})
				err = store.Ensure(t.Context())
				require.ErrorContains(t, err, "conflicting index")
				if strings.Contains(name, "delete") {
					require.ErrorContains(t, err, ", deleting after")
				}
				require.ErrorContains(t, err, "outmill_records")
				for kept, spec := range before {
					require.Equal(t, spec, indexesOf(t, db.Collection("outmill_records"))[kept])
					if kept != "_id_" && kept != "mine" {
						require.ErrorContains(t, err, kept)
						require.ErrorContains(t, err, asJSON(t, spec.Keys))
						require.ErrorContains(t, err, "the store wants it on {")
					}
				}
				require.ErrorIs(t, store.Append(t.Context(), one("never")), outmill.ErrSchemaMissing, "the schema is not complete")
			})
		}
	})

	t.Run("ten processes ensure the schema at once", func(t *testing.T) {
		t.Parallel()
		db := mongotest.Database(t)
		want := described(t, newStand(t, mongo.Config{Retain: time.Hour}).db)
		var processes errgroup.Group
		for i := range 10 {
			client := clientOf(t, options.Client().ApplyURI(mongotest.Server(t)))
			processes.Go(func() error {
				store, err := mongo.New(client, mongo.Config{Database: db.Name(), Retain: time.Hour, EnsureSchema: true}, nil)
				if err != nil {
					return err
				}
				defer func() { _ = store.Close() }()
				if i%2 == 0 {
					err = store.Ensure(t.Context())
				}
				if err != nil {
					return err
				}
				return store.Append(t.Context(), one(fmt.Sprint(i)), one(fmt.Sprint(i, " too")))
			})
		}
		require.NoError(t, processes.Wait())
		require.Equal(t, want, described(t, db))
		require.Len(t, listed(t, newStore(t, db.Client(), mongo.Config{Database: db.Name()})), 20)
	})

	t.Run("the printed statements make the schema that ensure makes", func(t *testing.T) {
		t.Parallel()
		for name, config := range map[string]mongo.Config{
			"default": {}, "retaining": {Retain: 36 * time.Hour, CollectionPrefix: "p_"},
			"named": {CollectionName: func(name string) string { return `"` + strings.ToUpper(name) + `" é` }},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				ensured := newStand(t, config)
				printed := mongotest.Database(t)
				for _, statement := range ensured.Statements() {
					text, ok := strings.CutPrefix(statement, "db.runCommand(")
					require.True(t, ok, statement)
					require.NotContains(t, statement, "\n")
					var command bson.D
					require.NoError(t, bson.UnmarshalExtJSON([]byte(strings.TrimSuffix(text, ")")), false, &command), statement)
					require.NoError(t, printed.RunCommand(t.Context(), command).Err(), statement)
				}
				require.Equal(t, described(t, ensured.db), described(t, printed))
				config.Database = printed.Name()
				store := newStore(t, printed.Client(), config)
				require.NoError(t, store.Append(t.Context(), one("before")), "nothing is missing")
				require.NoError(t, store.Ensure(t.Context()))
				require.Equal(t, described(t, ensured.db), described(t, printed))
			})
		}
	})

	t.Run("a newer schema is refused if it forbids this program, and otherwise used", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		meta := s.db.Collection("outmill_meta")
		_, err := meta.UpdateOne(t.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "version", Value: 7}}}})
		require.NoError(t, err)
		fresh := newStore(t, s.Client(), mongo.Config{Database: s.db.Name()})
		require.NoError(t, fresh.Ensure(t.Context()))
		require.NoError(t, fresh.Append(t.Context(), one("one")))
		require.NoError(t, s.Append(t.Context(), one("two")))
		var state struct{ Version, Compatible int }
		require.NoError(t, meta.FindOne(t.Context(), bson.D{}).Decode(&state))
		require.Equal(t, 7, state.Version, "Ensure does not take it back")

		_, err = meta.UpdateOne(t.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "compatible", Value: 7}}}})
		require.NoError(t, err)
		for _, store := range []*mongo.Store{s.Store, newStore(t, s.Client(), mongo.Config{Database: s.db.Name()})} {
			require.ErrorIs(t, store.Ensure(t.Context()), outmill.ErrSchemaNewer)
			require.ErrorIs(t, store.Append(t.Context(), one("never")), outmill.ErrSchemaNewer)
			require.ErrorIs(t, store.InTx(t.Context(), func(ctx context.Context) error { return store.Append(ctx, one("never")) }),
				outmill.ErrSchemaNewer)
			require.ErrorIs(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}), outmill.ErrSchemaNewer)
		}
	})

	t.Run("the server's own monitor deletes processed records and dedup keys", func(t *testing.T) {
		t.Parallel()
		server := mongotest.Own(t)
		client := clientOf(t, options.Client().ApplyURI(server.URL))
		require.NoError(t, server.SetParameter(t.Context(), "ttlMonitorEnabled", true))
		s := newStandIn(t, client.Database("test"), mongo.Config{Retain: time.Second, DedupWindow: time.Second})
		require.NoError(t, s.Append(t.Context(), once("processed", "key"), one("dead"), one("pending"), one("leased")))
		found := claimed(t, s, claimOf(outmill.NewOwnerToken(), 4, outmill.OrderNone))
		require.Len(t, found, 4)
		require.NoError(t, s.Ack(t.Context(), "", leasesOf(found[:1])))
		require.NoError(t, s.Fail(t.Context(), []outmill.Settlement{{Lease: found[1].Lease()}}))
		require.NoError(t, s.Release(t.Context(), leasesOf(found[2:3])))
		gone := func() bool {
			keys, err := s.db.Collection("outmill_dedup").CountDocuments(t.Context(), bson.D{})
			require.NoError(t, err)
			return keys == 0 && len(listed(t, s)) == 3
		}
		require.True(t, eventually(t.Context(), 2*patience, gone), "%q", listed(t, s))
		require.Equal(t, []string{"dead", "leased", "pending"}, listed(t, s))
		again := once("processed", "key")
		require.NoError(t, s.Append(t.Context(), again))
		require.False(t, again.Duplicate)
	})
}

func asJSON(t *testing.T, d bson.D) string {
	t.Helper()
	raw, err := bson.MarshalExtJSON(d, false, false)
	require.NoError(t, err)
	return string(raw)
}
