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
	"github.com/outmill/outmill/roles"
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
		require.NoError(t, s.db.Collection("outmill_lines").Drop(t.Context()))
		require.NoError(t, s.Ensure(t.Context()))
		require.Equal(t, before, described(t, s.db))
	})

	t.Run("the schema does not depend on the retention", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		before := described(t, s.db)
		require.Contains(t, indexesOf(t, s.db.Collection("outmill_entries")), "delete_at")
		for _, retain := range []time.Duration{time.Hour, 1500 * time.Millisecond, 1 << 62} {
			store := newStore(t, s.Client(), mongo.Config{Database: s.db.Name(), Retain: retain})
			require.NoError(t, store.Ensure(t.Context()))
			require.Equal(t, before, described(t, s.db))
			require.Equal(t, s.Statements(), store.Statements())
		}
	})

	t.Run("a changed retention applies to all processed records", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{Retain: time.Hour})
		require.NoError(t, s.Append(t.Context(), one("one")))
		require.NoError(t, s.Ack(t.Context(), "", leasesOf(claimed(t, s, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone)))))
		n, err := s.DeleteProcessed(t.Context(), 10)
		require.NoError(t, err)
		require.Zero(t, n)
		lowered := newStore(t, s.Client(), mongo.Config{Database: s.db.Name(), Retain: time.Millisecond})
		require.True(t, eventually(t.Context(), patience, func() bool {
			n, err := lowered.DeleteProcessed(t.Context(), 10)
			require.NoError(t, err)
			return n == 1
		}))
		require.Empty(t, listed(t, s))
	})

	t.Run("an index with another definition is reported and not changed", func(t *testing.T) {
		t.Parallel()
		ttl := int32(5)
		for name, model := range map[string]driver.IndexModel{
			"other keys": {Keys: bson.D{{Key: "mine", Value: 1}}, Options: options.Index().SetName("leased")},
			"other order": {Keys: bson.D{{Key: "wake", Value: -1}},
				Options: options.Index().SetName("leased").SetPartialFilterExpression(bson.D{{Key: "stage", Value: 2}})},
			"not partial": {Keys: bson.D{{Key: "wake", Value: 1}}, Options: options.Index().SetName("leased")},
			"deletes": {Keys: bson.D{{Key: "processed", Value: 1}},
				Options: options.Index().SetName("processed").SetExpireAfterSeconds(ttl).SetPartialFilterExpression(bson.D{{Key: "processed",
					Value: bson.D{{Key: "$gt", Value: 0}}}})},
			"the same under another name": {Keys: bson.D{{Key: "grp", Value: 1}, {Key: "stage", Value: 1}, {Key: "topic", Value: 1},
				{Key: "wake", Value: 1}, {Key: "seq", Value: 1}}, Options: options.Index().SetName("mine")},
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

	t.Run("the server's own monitor deletes dedup keys and notes of messages from elsewhere, and keeps the others", func(t *testing.T) {
		t.Parallel()
		server := mongotest.Own(t)
		client := clientOf(t, options.Client().ApplyURI(server.URL))
		require.NoError(t, server.SetParameter(t.Context(), "ttlMonitorEnabled", true))
		s := newStandIn(t, client.Database("test"), mongo.Config{DedupWindow: time.Second})
		require.NoError(t, s.Append(t.Context(), once("one", "key")))
		found := claimed(t, s, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderNone))
		require.Len(t, found, 1)
		for key, lease := range map[string]outmill.Lease{"own": found[0].Lease(), "elsewhere": {}} {
			note := roles.Note{Consumer: "c", Key: key, Retention: time.Second, Lease: lease}
			require.NoError(t, s.Transact(t.Context(), func(ctx context.Context) error { _, err := s.PutNote(ctx, note, 0); return err }))
		}
		noted := func(key string) bool {
			has, err := s.HasNote(t.Context(), "c", key)
			require.NoError(t, err)
			return has
		}
		require.True(t, eventually(t.Context(), 2*patience, func() bool {
			n, err := s.db.Collection("outmill_entries").CountDocuments(t.Context(), bson.D{{Key: "_id.kind", Value: "dedup"}})
			require.NoError(t, err)
			return n == 0 && !noted("elsewhere")
		}))
		require.True(t, noted("own"))
		again := once("one", "key")
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
