package allstores

import (
	"database/sql"
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/internal/testenv/mysqltest"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/internal/testenv/sqlservertest"
	outmillmongo "github.com/outmill/outmill/mongo"
	outmillmysql "github.com/outmill/outmill/mysql"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/sqlserver"
	"github.com/outmill/outmill/subscriber"
)

// suite is one way to run Watermill's own test suite.
type suite struct {
	name     string
	order    outmill.Order
	features tests.Features
}

// suites has the suite with and without exactly-once delivery declared. If it is declared,
// Watermill's suite skips its tests of loss on close; if not, it accepts duplicates.
func suites() []suite {
	var all []suite
	for _, exactlyOnce := range []bool{false, true} {
		delivery := "at least once"
		if exactlyOnce {
			delivery = "exactly once"
		}
		features := tests.Features{
			ConsumerGroups:      true,
			ExactlyOnceDelivery: exactlyOnce,
			Persistent:          true,
			ForceShort:          !testenv.All() || testenv.Brief(),
		}
		inOrder := features
		inOrder.GuaranteedOrder = true
		all = append(all,
			suite{"unordered, " + delivery, outmill.OrderNone, features},
			suite{"strict, " + delivery, outmill.OrderTopic, inOrder},
			suite{"ordered by key, " + delivery, outmill.OrderKey, features},
		)
	}
	return all
}

// usual has the suites that run on a store in a short run. Each suite is a usual one of some store.
var usual = map[string][]string{
	"SQLite":     {"ordered by key, at least once"},
	"PostgreSQL": {"strict, exactly once", "unordered, at least once"},
	"MongoDB":    {"strict, at least once"},
	"MySQL":      {"unordered, exactly once"},
	"SQL Server": {"ordered by key, exactly once"},
}

// stores has the stores of the suite, each with a database of its own.
var stores = map[string]func(t *testing.T) outmill.Store{
	"SQLite":     onSQLite,
	"PostgreSQL": onPostgreSQL,
	"MongoDB":    onMongoDB,
	"MySQL":      onMySQL,
	"SQL Server": onSQLServer,
}

// onSQLite does not wait for the disk, because the suite publishes messages one by one.
func onSQLite(t *testing.T) outmill.Store {
	t.Helper()
	file := "file:" + filepath.Join(t.TempDir(), "outbox.db") + "?_pragma=synchronous(OFF)"
	store, err := sqlite.Open(t.Context(), file, sqlite.Config{BusyTimeout: time.Minute}, nil)
	require.NoError(t, err)
	return store
}

func onPostgreSQL(t *testing.T) outmill.Store {
	t.Helper()
	config, err := pgxpool.ParseConfig(postgrestest.Database(t))
	require.NoError(t, err)
	config.MaxConns = 16
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	store, err := postgres.New(pool, postgres.Config{}, nil)
	require.NoError(t, err)
	return store
}

func onMongoDB(t *testing.T) outmill.Store {
	t.Helper()
	db := mongotest.Database(t)
	store, err := outmillmongo.New(db.Client(), outmillmongo.Config{Database: db.Name()}, nil)
	require.NoError(t, err)
	return store
}

func onMySQL(t *testing.T) outmill.Store {
	t.Helper()
	store, err := outmillmysql.Open(t.Context(), mysqltest.Database(t), outmillmysql.Config{}, nil)
	require.NoError(t, err)
	return store
}

func onSQLServer(t *testing.T) outmill.Store {
	t.Helper()
	db, err := sql.Open("sqlserver", sqlservertest.Database(t))
	require.NoError(t, err)
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	store, err := sqlserver.New(db, sqlserver.Config{}, nil)
	require.NoError(t, err)
	return store
}

func TestPubsub(t *testing.T) {
	t.Run("Watermill's suite for pubsubs passes", func(t *testing.T) {
		pubsubs(t, func(store, suite string) bool { return slices.Contains(usual[store], suite) })
	})
}

func TestPubsub_Variant(t *testing.T) {
	testenv.Unraced(t, "variants of Watermill's suite for pubsubs, of which each store runs one")
	pubsubs(t, func(store, suite string) bool { return !slices.Contains(usual[store], suite) })
}

// pubsubs runs Watermill's suite on each store, as far as it is wanted. One store comes after the other, because the suite waits 15 s at
// most for a message, and begins all its tests at once.
func pubsubs(t *testing.T, wanted func(store, suite string) bool) {
	t.Helper()
	for name, open := range stores {
		t.Run("on "+name, func(t *testing.T) {
			for _, s := range suites() {
				if !wanted(name, s.name) {
					continue
				}
				t.Run(s.name, func(t *testing.T) {
					t.Parallel()
					s.run(t, open, tests.TestPubSub)
				})
			}
		})
	}
}

// watermills is one of the suites that Watermill has.
type watermills func(*testing.T, tests.Features, tests.PubSubConstructor, tests.ConsumerGroupPubSubConstructor)

// run runs one of them over one database.
func (s suite) run(t *testing.T, open func(t *testing.T) outmill.Store, suite watermills) {
	t.Helper()
	store := open(t)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Ensure(t.Context()))
	construct, constructWithGroup := s.constructors(store)
	suite(t, s.features, construct, constructWithGroup)
}

// constructors make publishers and subscribers over the store.
func (s suite) constructors(store outmill.Store) (tests.PubSubConstructor, tests.ConsumerGroupPubSubConstructor) {
	withGroup := func(t *testing.T, group string) (message.Publisher, message.Subscriber) {
		t.Helper()
		pub, err := publisher.New(store, publisher.Config{}, nil)
		require.NoError(t, err)
		sub, err := subscriber.New(store, subscriber.Config{
			Group:        group,
			Order:        s.order,
			Retry:        outmill.RetryPolicy{MaxAttempts: -1, InitialInterval: 10 * time.Millisecond, MaxInterval: 10 * time.Millisecond},
			CloseTimeout: time.Second,
		}, nil)
		require.NoError(t, err)
		// The suite does not close all of them.
		patient := forgiving{sub}
		t.Cleanup(func() { require.NoError(t, patient.Close()) })
		return pub, patient
	}
	return func(t *testing.T) (message.Publisher, message.Subscriber) {
		t.Helper()
		return withGroup(t, "")
	}, withGroup
}

// forgiving is for the suite's TestMessageCtx, which never acks or nacks a message and
// expects no error from Close.
type forgiving struct{ *subscriber.Subscriber }

func (f forgiving) Close() error {
	if err := f.Subscriber.Close(); !errors.Is(err, outmill.ErrHandlersRunning) {
		return err
	}
	return nil
}
