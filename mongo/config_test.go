package mongo_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/mongo"
)

func TestStore_Config(t *testing.T) {
	t.Parallel()

	t.Run("each invalid setting is refused by its name", func(t *testing.T) {
		t.Parallel()
		named := func(name string) mongo.Config {
			return mongo.Config{CollectionName: func(string) string { return name }}
		}
		for want, config := range map[string]mongo.Config{
			"Config.Database is \"a.b\"":                 {Database: "a.b"},
			"Config.Database is \"a b\"":                 {Database: "a b"},
			"Config.Database is \"a/b\"":                 {Database: "a/b"},
			"Config.Database is \"xxx":                   {Database: strings.Repeat("x", 64)},
			"Config.CollectionPrefix is \"a$\"":          {CollectionPrefix: "a$"},
			"Config.CollectionPrefix is \"system.x\"":    {CollectionPrefix: "system.x"},
			"Config.CollectionPrefix is \".x\"":          {CollectionPrefix: ".x"},
			"Config.CollectionPrefix is \"xxx":           {CollectionPrefix: strings.Repeat("x", 101)},
			"Config.AppendLogLevel is WARN":              {AppendLogLevel: slog.LevelWarn},
			"Config.Retain is -1ns":                      {Retain: -1},
			"Config.DedupWindow is -1s":                  {DedupWindow: -time.Second},
			"Config.RetainAudit is -1s":                  {RetainAudit: -time.Second},
			"Config.MaxPayload is -1":                    {MaxPayload: -1},
			"Config.MaxPayload is 16777216":              {MaxPayload: 16 << 20},
			"Config.FairTopics has \"\"":                 {FairTopics: []string{""}},
			"Config.CollectionName gives \"\" for":       named(""),
			"Config.CollectionName gives \"a\" for both": named("a"),
			"Config.CollectionName gives \"a$\" for":     named("a$"),
		} {
			err := config.Validate()
			require.ErrorIs(t, err, outmill.ErrInvalidConfig, want)
			require.ErrorContains(t, err, want)
			_, err = mongo.New(nil, config, nil)
			require.ErrorIs(t, err, outmill.ErrInvalidConfig, want)
			_, err = mongo.Open(t.Context(), "mongodb://127.0.0.1:1/", config, nil)
			require.ErrorIs(t, err, outmill.ErrInvalidConfig, want)
		}
		require.NoError(t, mongo.Config{}.Validate())
	})

	t.Run("all invalid settings are reported at once", func(t *testing.T) {
		t.Parallel()
		err := mongo.Config{Database: "$", Retain: -1, MaxPayload: -1}.Validate()
		for _, field := range []string{"Database", "Retain", "MaxPayload"} {
			require.ErrorContains(t, err, field)
		}
		require.NotContains(t, err.Error(), "DedupWindow")
	})

	t.Run("Config.CollectionName names the collections", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{CollectionName: func(name string) string { return "Outbox" + strings.ToUpper(name[:1]) + name[1:] }})
		require.NoError(t, s.Append(t.Context(), one("one"), once("two", "key")))
		found := claimed(t, s, claimOf(outmill.NewOwnerToken(), 10, outmill.OrderKey))
		require.Len(t, found, 2)
		require.NoError(t, s.Ack(t.Context(), "", leasesOf(found)))
		names, err := s.db.ListCollectionNames(t.Context(), struct{}{})
		require.NoError(t, err)
		require.Contains(t, names, "OutboxRecords")
		for _, name := range names {
			require.True(t, strings.HasPrefix(name, "Outbox"), name)
		}
	})

	t.Run("stores of other prefixes and databases do not see each other", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		stores := []stand{s, newStandIn(t, s.db, mongo.Config{CollectionPrefix: "a_"}), newStandIn(t, s.db, mongo.Config{CollectionPrefix: "A_"}),
			newStand(t, mongo.Config{})}
		for i, store := range stores {
			require.NoError(t, store.Append(t.Context(), once(strings.Repeat("x", i+1), "key")))
		}
		for i, store := range stores {
			require.Equal(t, []string{strings.Repeat("x", i+1)}, listed(t, store))
		}
	})
}
