package tenants_test

import (
	"context"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/tenants"
)

func keysOf(t *testing.T, discovery tenants.Discovery) []string {
	t.Helper()
	found, err := discovery.Tenants(t.Context())
	require.NoError(t, err)
	keys := make([]string, len(found))
	for i, tenant := range found {
		keys[i] = tenant.Key
	}
	slices.Sort(keys)
	return keys
}

// serve writes a record to each tenant and claims them all.
func serve(t *testing.T, set *tenants.Set, keys ...string) {
	t.Helper()
	require.NoError(t, set.RegisterGroup(t.Context(), outmill.Registration{}))
	want := map[string]int{}
	for _, key := range keys {
		require.NoError(t, set.Append(t.Context(), &outmill.Record{Topic: topic, TenantID: key}))
		want[key] = 1
	}
	var found []*outmill.Record
	// A claim waits for a late member for a short time only.
	require.Eventually(t, func() bool {
		more, err := set.Claim(t.Context(), request(100))
		require.NoError(t, err)
		found = append(found, more...)
		return len(found) >= len(want)
	}, soon, tick)
	require.Equal(t, want, perStore(found))
	require.NoError(t, set.Ack(t.Context(), "", leasesOf(found)))
}

func TestSet_Schemas(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(context.WithoutCancel(t.Context()), postgrestest.Database(t))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	run := func(t *testing.T, statement, name string) {
		_, err := pool.Exec(t.Context(), statement+pgx.Identifier{name}.Sanitize())
		require.NoError(t, err)
	}
	for _, name := range []string{"shop_a", "shopXb", `100% "it's" \ *`, "100 others", "Shop_c"} {
		run(t, "CREATE SCHEMA ", name)
	}

	t.Run("a pattern matches names literally but for *, and no schema of PostgreSQL", func(t *testing.T) {
		for pattern, want := range map[string][]string{
			"shop_*":    {"shop_a"},
			"100%*":     {`100% "it's" \ *`},
			`*\\ \*`:    {`100% "it's" \ *`},
			"*[a-z]*":   {},
			"*":         {`100% "it's" \ *`, "100 others", "Shop_c", "public", "shopXb", "shop_a"},
			"pg_*":      {},
			"*_schema*": {},
		} {
			require.ElementsMatch(t, want, keysOf(t, postgres.Schemas{Pool: pool, Pattern: pattern}), pattern)
		}
	})

	t.Run("what makes no sense is refused before PostgreSQL is asked", func(t *testing.T) {
		for _, bad := range []postgres.Schemas{
			{Pool: pool}, {Pattern: "*"}, {Pool: pool, Pattern: "*", Config: postgres.Config{Schema: "one"}},
			{Pool: pool, Pattern: "*", Config: postgres.Config{Retain: -1}},
		} {
			_, err := bad.Tenants(t.Context())
			require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		}
		_, err := postgres.Schemas{Pool: pool, Pattern: "*"}.Open(t.Context(), tenants.Tenant{Key: "a", URL: "postgres://a"})
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
	})

	t.Run("schemas come, go and are made again while the set is open", func(t *testing.T) {
		run(t, "CREATE SCHEMA ", `t%1"`)
		set, err := tenants.New(t.Context(), tenants.Config{
			Discovery: postgres.Schemas{Pool: pool, Pattern: "t%*", Key: func(schema string) string { return schema[2:] }},
			Ensure:    true, Linger: -1, CallTimeout: patient,
		}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, set.Close()) })
		awaitOpen(t, set, 1)
		serve(t, set, `1"`)
		before, err := set.Outbox(`1"`)
		require.NoError(t, err)
		require.Equal(t, `postgres/t%1"`, before.Name())

		run(t, "CREATE SCHEMA ", "t%2")
		refresh(t, set)
		serve(t, set, `1"`, "2")
		same, err := set.Outbox(`1"`)
		require.NoError(t, err)
		require.Same(t, before, same)

		_, err = pool.Exec(t.Context(), `DROP SCHEMA "t%1""" CASCADE; DROP SCHEMA "t%2" CASCADE; CREATE SCHEMA "t%2"`)
		require.NoError(t, err)
		refresh(t, set)
		require.Equal(t, []string{"2"}, set.Keys())
		serve(t, set, "2")
	})
}

func TestSet_Databases(t *testing.T) {
	t.Parallel()
	client, err := driver.Connect(options.Client().ApplyURI(mongotest.Server(t)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.WithoutCancel(t.Context()))) })
	prefix := testenv.DatabaseName()
	create := func(t *testing.T, name string) {
		require.NoError(t, client.Database(prefix+name).CreateCollection(t.Context(), "things"))
		t.Cleanup(func() { _ = client.Database(prefix + name).Drop(context.WithoutCancel(t.Context())) })
	}

	t.Run("a pattern matches names literally but for *, and no database of MongoDB", func(t *testing.T) {
		for _, name := range []string{"_a", "-a+(b)", "xa"} {
			create(t, name)
		}
		for pattern, want := range map[string][]string{
			prefix + "_*":  {prefix + "_a"},
			prefix + "?a":  {},
			prefix + ".a":  {},
			prefix + "*+*": {prefix + "-a+(b)"},
			prefix + "*":   {prefix + "-a+(b)", prefix + "_a", prefix + "xa"},
		} {
			require.Equal(t, append([]string{}, want...), keysOf(t, mongo.Databases{Client: client, Pattern: pattern}), pattern)
		}
		for _, name := range []string{"admin", "config", "local"} {
			require.Empty(t, keysOf(t, mongo.Databases{Client: client, Pattern: name}))
		}
	})

	t.Run("what makes no sense is refused before MongoDB is asked", func(t *testing.T) {
		for _, bad := range []mongo.Databases{
			{Client: client}, {Pattern: "*"}, {Client: client, Pattern: "*", Config: mongo.Config{Database: "one"}},
		} {
			_, err := bad.Tenants(t.Context())
			require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		}
		_, err := mongo.Databases{Client: client, Pattern: "*"}.Open(t.Context(), tenants.Tenant{Key: "a", URL: "mongodb://a"})
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
	})

	t.Run("databases come and go while the set is open", func(t *testing.T) {
		create(t, "t1")
		set, err := tenants.New(t.Context(), tenants.Config{
			Discovery: mongo.Databases{Client: client, Pattern: prefix + "t*"}, Ensure: true, Linger: -1, CallTimeout: patient,
		}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, set.Close()) })
		awaitOpen(t, set, 1)
		serve(t, set, prefix+"t1")
		create(t, "t2")
		refresh(t, set)
		serve(t, set, prefix+"t1", prefix+"t2")
		require.NoError(t, client.Database(prefix+"t1").RunCommand(t.Context(), bson.D{{Key: "dropDatabase", Value: 1}}).Err())
		refresh(t, set)
		require.Equal(t, []string{prefix + "t2"}, set.Keys())
	})
}
