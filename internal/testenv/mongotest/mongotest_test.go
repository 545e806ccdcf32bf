package mongotest_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.uber.org/goleak"

	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/enginetest"
	"github.com/outmill/outmill/internal/testenv/mongoengine"
	"github.com/outmill/outmill/internal/testenv/mongotest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func mongoClient(t *testing.T, url string) *mongo.Client {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(url))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	return client
}

func names(t *testing.T, things *mongo.Collection) []string {
	t.Helper()
	found, err := things.Find(t.Context(), bson.D{}, options.Find().SetSort(bson.D{{Key: "name", Value: 1}}))
	require.NoError(t, err)
	var docs []struct{ Name string }
	require.NoError(t, found.All(t.Context(), &docs))
	all := []string{}
	for _, doc := range docs {
		all = append(all, doc.Name)
	}
	return all
}

func insertName(ctx context.Context, things *mongo.Collection, name string) error {
	_, err := things.InsertOne(ctx, bson.D{{Key: "name", Value: name}})
	return err
}

func TestMongotest(t *testing.T) {
	t.Parallel()

	t.Run("a transaction of mongodb is kept whole or not at all", func(t *testing.T) {
		t.Parallel()
		database := mongotest.Database(t)
		things, others := database.Collection("things"), database.Collection("others")
		session, err := database.Client().StartSession()
		require.NoError(t, err)
		defer session.EndSession(t.Context())
		refused := errors.New("no")
		for name, end := range map[string]error{"kept": nil, "given up": refused} {
			_, err := session.WithTransaction(t.Context(), func(ctx context.Context) (any, error) {
				return nil, errors.Join(ctx.Err(), insertName(ctx, things, name), insertName(ctx, others, name), end)
			})
			require.ErrorIs(t, err, end)
		}
		require.Equal(t, []string{"kept"}, names(t, things))
		require.Equal(t, []string{"kept"}, names(t, others))
	})

	t.Run("all tests of a binary share one mongodb and no database", func(t *testing.T) {
		t.Parallel()
		server := mongotest.Server(t)
		require.Equal(t, server, mongotest.Server(t))
		var gone string
		t.Run("inner", func(t *testing.T) {
			mine, other := mongotest.Database(t), mongotest.DatabaseOn(t, server)
			require.NotEqual(t, mine.Name(), other.Name())
			require.NoError(t, insertName(t.Context(), mine.Collection("things"), "mine"))
			require.Empty(t, names(t, other.Collection("things")))
			gone = mine.Name()
		})
		left, err := mongoClient(t, server).ListDatabaseNames(t.Context(), bson.D{})
		require.NoError(t, err)
		require.NotContains(t, left, gone)
	})

	t.Run("many databases of mongodb are made at once", func(t *testing.T) {
		t.Parallel()
		mongotest.Server(t)
		for i := range 20 {
			t.Run(strconv.Itoa(i), func(t *testing.T) {
				t.Parallel()
				things := mongotest.Database(t).Collection("things")
				require.NoError(t, insertName(t.Context(), things, "one"))
				require.Equal(t, []string{"one"}, names(t, things))
			})
		}
	})

	t.Run("a mongodb of the test's own keeps its data and its port over stops and kills", func(t *testing.T) {
		testenv.Long(t, "MongoDB servers of the tests that are stopped and started")
		t.Parallel()
		server := mongotest.Own(t)
		address := server.URL
		things := mongoClient(t, address).Database("test").Collection("things")
		for name, end := range map[string]func() error{
			"stop": func() error { return server.Stop(t.Context()) },
			"kill": func() error { return server.Kill(t.Context()) },
		} {
			require.NoError(t, insertName(t.Context(), things, name))
			require.NoError(t, end(), name)
			require.Error(t, mongoengine.Check(t.Context(), address), name)
			require.NoError(t, end(), "%s: again", name)
			require.NoError(t, server.Start(t.Context()), name)
			require.NoError(t, mongoengine.Check(t.Context(), address), name)
		}
		require.NoError(t, server.Restart(t.Context()))
		require.NoError(t, server.Kill(t.Context()))
		require.NoError(t, server.Restart(t.Context()))
		require.Equal(t, address, server.URL)
		// The test makes a new client, because the earlier one notices the restart only later.
		require.Equal(t, []string{"kill", "stop"}, names(t, mongoClient(t, address).Database("test").Collection("things")))
	})

	t.Run("a mongodb that is started deletes nothing by itself", func(t *testing.T) {
		testenv.Long(t, "MongoDB servers of the tests that are stopped and started")
		t.Parallel()
		server := mongotest.Own(t)
		admin := mongoClient(t, server.URL).Database("admin")
		for range 2 {
			var reply struct {
				Enabled bool `bson:"ttlMonitorEnabled"`
			}
			ask := bson.D{{Key: "getParameter", Value: 1}, {Key: "ttlMonitorEnabled", Value: 1}}
			require.NoError(t, admin.RunCommand(t.Context(), ask).Decode(&reply))
			require.False(t, reply.Enabled)
			require.NoError(t, server.Restart(t.Context()))
			admin = mongoClient(t, server.URL).Database("admin")
		}
	})

	t.Run("a parameter of a mongodb stays set over restarts", func(t *testing.T) {
		testenv.Long(t, "MongoDB servers of the tests that are stopped and started")
		t.Parallel()
		const name = "transactionLifetimeLimitSeconds"
		server := mongotest.Own(t)
		require.NoError(t, server.SetParameter(t.Context(), name, 7))
		for range 2 {
			var reply struct {
				Seconds int `bson:"transactionLifetimeLimitSeconds"`
			}
			admin := mongoClient(t, server.URL).Database("admin")
			require.NoError(t, admin.RunCommand(t.Context(), bson.D{{Key: "getParameter", Value: 1}, {Key: name, Value: 1}}).Decode(&reply))
			require.Equal(t, 7, reply.Seconds)
			require.NoError(t, server.Restart(t.Context()))
		}
	})

	t.Run("a standalone mongodb has no transactions", func(t *testing.T) {
		t.Parallel()
		server := mongotest.Own(t, mongoengine.Standalone)
		things := mongoClient(t, server.URL).Database("test").Collection("things")
		require.NoError(t, insertName(t.Context(), things, "one"))
		var hello struct {
			SetName string `bson:"setName"`
		}
		require.NoError(t, things.Database().RunCommand(t.Context(), bson.D{{Key: "hello", Value: 1}}).Decode(&hello))
		require.Empty(t, hello.SetName)
		require.ErrorContains(t, mongoengine.Check(t.Context(), server.URL), "not a member of a replica set")
		require.NoError(t, server.Restart(t.Context()))
	})

	t.Run("a mongodb leaves no files when its test ends with it", func(t *testing.T) {
		testenv.Long(t, "MongoDB servers of the tests that are stopped and started")
		t.Parallel()
		for name, before := range map[string]func(context.Context, *mongoengine.Engine) error{
			"running": func(context.Context, *mongoengine.Engine) error { return nil },
			"stopped": func(ctx context.Context, server *mongoengine.Engine) error { return server.Stop(ctx) },
			"killed":  func(ctx context.Context, server *mongoengine.Engine) error { return server.Kill(ctx) },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var server *mongoengine.Engine
				t.Run("inner", func(t *testing.T) {
					server = mongotest.Own(t)
					require.NoError(t, before(t.Context(), server))
				})
				if server == nil {
					t.Skip("skipped: no server was started")
				}
				require.NoDirExists(t, server.Dir)
				require.Error(t, mongoengine.Check(t.Context(), server.URL))
			})
		}
	})

	t.Run("a mongodb ends when its test binary is killed", func(t *testing.T) {
		t.Parallel()
		if testing.Short() {
			t.Skip("skipped: no MongoDB is started under -short")
		}
		enginetest.EndsWithItsBinary(t, "TestChild_KilledWithMongoDB", mongoengine.Check)
	})

	t.Run("the error for an invalid flag has mongodb's message", func(t *testing.T) {
		t.Parallel()
		if testing.Short() {
			t.Skip("skipped: no MongoDB is started under -short")
		}
		program, err := mongoengine.FindProgram(t.Context())
		if err != nil {
			t.Skipf("skipped: no MongoDB: %v", err)
		}
		server, err := mongoengine.Prepare(program, filepath.Join(t.TempDir(), "server"), "--no-such-flag")
		require.NoError(t, err)
		err = server.Start(t.Context())
		server.End()
		require.ErrorContains(t, err, "no-such-flag")
		require.NoDirExists(t, server.Dir)
	})

	t.Run("the package that a skip names is the one that CI installs", func(t *testing.T) {
		t.Parallel()
		script, err := os.ReadFile("../../../.ci/mongod")
		require.NoError(t, err)
		require.Contains(t, string(script), "package="+mongoengine.Package+"\n")
	})

	t.Run("a url that is none is refused without its password", func(t *testing.T) {
		t.Parallel()
		for _, url := range []string{
			"mongodb://user:secret@127.0.0.1:port/", "mongodb://user:secret@127.0.0.1:1/?replicaSet",
			"mongodb://user:sec/ret@127.0.0.1:1/", "http://user:secret@127.0.0.1:1/", "user:secret@127.0.0.1",
		} {
			err := mongoengine.Check(t.Context(), url)
			require.Error(t, err)
			require.NotContains(t, err.Error(), "secret")
			require.NotContains(t, err.Error(), "ret@")
		}
	})
}

func TestChild_KilledWithMongoDB(t *testing.T) {
	enginetest.IsChild(t)
	server := mongotest.Own(t)
	enginetest.Tell(t, server.URL, server.Dir)
}

func TestMongotest_Serial(t *testing.T) {
	t.Run("a mongodb that the environment names is taken and must answer", func(t *testing.T) {
		t.Setenv(mongoengine.EnvURL, "mongodb://user:secret@127.0.0.1:1/?replicaSet=name")
		_, err := mongoengine.Find(t.Context())
		require.ErrorContains(t, err, mongoengine.EnvURL)
		require.NotContains(t, err.Error(), "secret")

		t.Setenv(mongoengine.EnvURL, "")
		named := mongotest.Server(t)
		t.Setenv(mongoengine.EnvURL, named)
		found, err := mongoengine.Find(t.Context())
		require.NoError(t, err)
		require.Equal(t, named, found)
	})
}
