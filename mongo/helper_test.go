package mongo_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo"
)

const (
	readers  = "readers"
	patience = time.Minute
)

// stand is a store with its schema, in a database of its own, and a group.
type stand struct {
	*mongo.Store
	db *driver.Database
}

func newStand(t *testing.T, config mongo.Config) stand {
	t.Helper()
	return newStandIn(t, mongotest.Database(t), config)
}

func newStandIn(t *testing.T, db *driver.Database, config mongo.Config) stand {
	t.Helper()
	config.Database = db.Name()
	store := newStore(t, db.Client(), config)
	require.NoError(t, store.Ensure(t.Context()))
	require.NoError(t, store.RegisterGroup(t.Context(), outmill.Registration{Group: readers}))
	return stand{store, db}
}

// second is another store on the same collections, with a client of its own, as in another
// process.
func (s stand) second(t *testing.T, url string, config mongo.Config) *mongo.Store {
	t.Helper()
	config.Database = s.db.Name()
	return newStore(t, clientOf(t, options.Client().ApplyURI(url)), config)
}

func clientOf(t *testing.T, opts *options.ClientOptions) *driver.Client {
	t.Helper()
	client, err := driver.Connect(opts)
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.WithoutCancel(t.Context())) })
	return client
}

func (s stand) orders() *driver.Collection  { return s.db.Collection("orders") }
func (s stand) records() *driver.Collection { return s.db.Collection("outmill_records") }

// order inserts the user's own document, together with a message.
func (s stand) order(ctx context.Context, name string) error {
	_, err := s.orders().InsertOne(ctx, bson.D{{Key: "_id", Value: name}})
	return err
}

// ordered returns the user's own documents, in their order.
func (s stand) ordered(t *testing.T) []string {
	t.Helper()
	cursor, err := s.orders().Find(t.Context(), bson.D{}, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
	require.NoError(t, err)
	var found []struct {
		Name string `bson:"_id"`
	}
	require.NoError(t, cursor.All(t.Context(), &found))
	names := []string{}
	for _, f := range found {
		names = append(names, f.Name)
	}
	return names
}

func (s stand) session(t *testing.T) *driver.Session {
	t.Helper()
	session, err := s.Client().StartSession()
	require.NoError(t, err)
	t.Cleanup(func() { session.EndSession(context.WithoutCancel(t.Context())) })
	return session
}

func one(name string) *outmill.Record { return &outmill.Record{Topic: "orders", MessageID: name} }

func once(name, key string) *outmill.Record {
	return &outmill.Record{Topic: "orders", MessageID: name, DedupKey: key}
}

// made makes n records of a topic, with keys and ids for a name.
func made(topic, name string, n int) []*outmill.Record {
	records := make([]*outmill.Record, n)
	for i := range records {
		records[i] = &outmill.Record{
			Topic: topic, Key: fmt.Sprintf("key%d", i%7), MessageID: fmt.Sprintf("%s-%d", name, i), Payload: []byte("payload"),
		}
	}
	return records
}

func claimOf(owner outmill.OwnerToken, limit int, order outmill.Order, topics ...string) outmill.ClaimRequest {
	return outmill.ClaimRequest{
		Owner: owner, Group: readers, Limit: limit, Lease: time.Minute, Order: order,
		Topics: outmill.Topics{Include: topics},
	}
}

func claimed(t *testing.T, store outmill.Queue, req outmill.ClaimRequest) []*outmill.Record {
	t.Helper()
	found, err := store.Claim(t.Context(), req)
	require.NoError(t, err)
	return found
}

func leasesOf(records []*outmill.Record) []outmill.Lease {
	leases := make([]outmill.Lease, len(records))
	for i, r := range records {
		leases[i] = r.Lease()
	}
	return leases
}

func namesOf(records []*outmill.Record) []string {
	names := []string{}
	for _, r := range records {
		names = append(names, r.MessageID)
	}
	return names
}

// listed returns the names of all records, sorted.
func listed(t *testing.T, store outmill.Inspector) []string {
	t.Helper()
	found, err := store.List(t.Context(), outmill.ListQuery{Limit: 100_000})
	require.NoError(t, err)
	names := namesOf(found)
	slices.Sort(names)
	return names
}

// victimOf is a client whose commands have the name app. It reads the state of its server again
// at once, because a failpoint may make the server say that it is not a primary any more, and no
// event corrects that.
func victimOf(t *testing.T, url, app string) *driver.Client {
	t.Helper()
	return clientOf(t, options.Client().ApplyURI(url).SetAppName(app).
		SetServerMonitoringMode(options.ServerMonitoringModePoll).SetHeartbeatInterval(500*time.Millisecond))
}

// failing makes the server fail commands of the client named app, by the failpoint failCommand. A
// server has only one such failpoint, so the test needs a server of its own.
func failing(t *testing.T, admin *driver.Client, app string, times int, fields bson.D) {
	t.Helper()
	data := append(bson.D{{Key: "appName", Value: app}}, fields...)
	require.NoError(t, admin.Database("admin").RunCommand(t.Context(), bson.D{
		{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: bson.D{{Key: "times", Value: times}}}, {Key: "data", Value: data},
	}).Err())
}

// delayed is a command that the server begins late.
type delayed struct {
	t     *testing.T
	admin *driver.Database
	app   string
	// before is how often a command was delayed before.
	before int
}

// delaying delays the next command of the client named app. See failing.
func delaying(t *testing.T, admin *driver.Client, app, command string) delayed {
	t.Helper()
	var set struct {
		Count int `bson:"count"`
	}
	db := admin.Database("admin")
	require.NoError(t, db.RunCommand(t.Context(), bson.D{
		{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: bson.D{{Key: "times", Value: 1}}},
		{Key: "data", Value: bson.D{
			{Key: "appName", Value: app}, {Key: "failCommands", Value: bson.A{command}}, {Key: "blockConnection", Value: true},
			{Key: "blockTimeMS", Value: 400},
		}},
	}).Decode(&set))
	return delayed{t, db, app, set.Count}
}

// wait waits until the server has the command.
func (d delayed) wait() {
	d.t.Helper()
	require.NoError(d.t, d.admin.RunCommand(d.t.Context(), bson.D{
		{Key: "waitForFailPoint", Value: "failCommand"}, {Key: "timesEntered", Value: d.before + 1},
		{Key: "maxTimeMS", Value: patience.Milliseconds()},
	}).Err())
}

// running returns how many commands of the client the server works on.
func (d delayed) running() int {
	return d.operations(bson.D{
		{Key: "appName", Value: d.app}, {Key: "active", Value: true}, {Key: "command.hello", Value: bson.D{{Key: "$exists", Value: false}}},
	})
}

// open returns how many open transactions the server has that wait for their next statement.
func (d delayed) open() int {
	return d.operations(bson.D{{Key: "type", Value: "idleSession"}, {Key: "transaction", Value: bson.D{{Key: "$exists", Value: true}}}})
}

func (d delayed) operations(filter bson.D) int {
	d.t.Helper()
	cursor, err := d.admin.Aggregate(d.t.Context(), driver.Pipeline{
		{{Key: "$currentOp", Value: bson.D{{Key: "allUsers", Value: true}, {Key: "idleSessions", Value: true}}}},
		{{Key: "$match", Value: filter}},
	})
	require.NoError(d.t, err)
	var found []bson.M
	require.NoError(d.t, cursor.All(d.t.Context(), &found))
	return len(found)
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func eventually(ctx context.Context, within time.Duration, fn func() bool) bool {
	for end := time.Now().Add(within); time.Now().Before(end); {
		if fn() {
			return true
		}
		if pause(ctx, 20*time.Millisecond) != nil {
			return false
		}
	}
	return fn()
}

// told waits for a waker's channel.
func told(t *testing.T, wake <-chan struct{}) {
	t.Helper()
	select {
	case <-wake:
	case <-time.After(patience):
		require.FailNow(t, "nobody was woken")
	}
}
