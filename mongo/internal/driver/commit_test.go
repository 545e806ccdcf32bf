package driver_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo/internal/driver"
	"github.com/outmill/outmill/storekit"
)

// gone is a server that fails the first commit, and then cannot be reached.
type gone struct {
	// armed has the next commit fail; refused counts the connections that have failed since, and back accepts them again.
	armed, back atomic.Bool
	refused     atomic.Int64
	refuses     atomic.Bool
}

func (g *gone) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if g.refuses.Load() && !g.back.Load() {
		g.refused.Add(1)
		return nil, errors.New("the server is gone")
	}
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

func (g *gone) started(_ context.Context, e *event.CommandStartedEvent) {
	if e.CommandName == "commitTransaction" && g.armed.CompareAndSwap(true, false) {
		g.refuses.Store(true)
	}
}

func (g *gone) reset() {
	g.refuses.Store(false)
	g.back.Store(false)
	g.armed.Store(true)
}

// The driver repeats a commit by itself. If it then finds no server, it returns the error of the first try, without the label that says
// that the result is unknown, and in a type of its own.
func TestCommit_WhoseServerIsGoneForTheSecondTry(t *testing.T) {
	t.Parallel()
	const app = "gone"
	url := mongotest.Own(t).URL
	admin := dial(t, options.Client().ApplyURI(url))
	g := &gone{}
	client := dial(t, options.Client().ApplyURI(url).SetAppName(app).SetDialer(g).SetMonitor(&event.CommandMonitor{Started: g.started}).
		SetServerMonitoringMode(options.ServerMonitoringModePoll).SetHeartbeatInterval(500*time.Millisecond).
		SetServerSelectionTimeout(300*time.Millisecond))
	store := engine.New(driver.New(client, driver.Config{Database: "test", WithoutChangeStream: true}), engine.Config{Name: "gone"})
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Ensure(t.Context()))
	transact := func(ctx context.Context, id string) error {
		return store.Transact(ctx, func(ctx context.Context) error {
			return store.Append(ctx, &outmill.Record{MessageID: id, Topic: "orders"})
		})
	}
	for id, failure := range map[string]bson.E{
		"not done":             {Key: "errorCode", Value: 91},
		"done and unconfirmed": {Key: "writeConcernError", Value: bson.D{{Key: "code", Value: 91}, {Key: "errmsg", Value: "shutting down"}}},
	} {
		failOnce := func() {
			g.reset()
			require.NoError(t, admin.Database("admin").RunCommand(t.Context(), bson.D{
				{Key: "configureFailPoint", Value: "failCommand"}, {Key: "mode", Value: bson.D{{Key: "times", Value: 1}}},
				{Key: "data", Value: bson.D{{Key: "appName", Value: app}, {Key: "failCommands", Value: bson.A{"commitTransaction"}}, failure}},
			}).Err())
		}
		failOnce()
		time.AfterFunc(600*time.Millisecond, func() { g.back.Store(true) })
		require.NoError(t, transact(t.Context(), id), id)
		require.False(t, g.armed.Load(), "the commit was not reached")

		if failure.Key == "errorCode" {
			continue
		}
		failOnce()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		require.ErrorIs(t, transact(ctx, id+" too"), storekit.ErrCommitInDoubt, id)
		cancel()
		g.back.Store(true)
	}
}

func dial(t *testing.T, opts *options.ClientOptions) *mongo.Client {
	t.Helper()
	client, err := mongo.Connect(opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Disconnect(context.WithoutCancel(t.Context()))) })
	return client
}
