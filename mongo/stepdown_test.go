package mongo_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/mongo"
)

// usurper makes the primary step down in the middle of a command of its store.
type usurper struct {
	*mongo.Store
	admin *driver.Database

	mu sync.Mutex
	// begun reports whether the command has done a part of its work; nil disarms.
	command string
	begun   func() bool
	// cut is how many commands were answered with an error of the election.
	cut  atomic.Int32
	done sync.WaitGroup
}

func newUsurper(t *testing.T, s stand, url string) *usurper {
	t.Helper()
	u := &usurper{admin: s.Client().Database("admin")}
	client := clientOf(t, options.Client().ApplyURI(url).SetMonitor(&event.CommandMonitor{
		Started: func(_ context.Context, e *event.CommandStartedEvent) { u.started(e.CommandName) },
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			if e.CommandName == "update" || e.CommandName == "delete" {
				_, err := e.Reply.LookupErr("writeErrors")
				u.note(err == nil)
			}
		},
		Failed: func(_ context.Context, e *event.CommandFailedEvent) {
			u.note(e.CommandName == "update" || e.CommandName == "delete")
		},
	}))
	u.Store = newStore(t, client, mongo.Config{Database: s.db.Name(), WithoutChangeStream: true})
	_, err := u.Groups(t.Context()) // the schema is checked
	require.NoError(t, err)
	return u
}

func (u *usurper) note(failed bool) {
	if failed {
		u.cut.Add(1)
	}
}

func (u *usurper) arm(command string, begun func() bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.command, u.begun = command, begun
	u.cut.Store(0)
}

func (u *usurper) started(command string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.begun == nil || command != u.command {
		return
	}
	begun := u.begun
	u.begun = nil
	u.done.Go(func() {
		if eventually(context.Background(), patience, begun) {
			_ = u.admin.RunCommand(context.Background(),
				bson.D{{Key: "replSetStepDown", Value: 1}, {Key: "force", Value: true}, {Key: "secondaryCatchUpPeriodSecs", Value: 0}}).Err()
		}
	})
}

func TestStore_Stepdown(t *testing.T) {
	t.Parallel()

	// The changes that a multi-update has made before the primary steps down stay, and the driver
	// does not repeat the update.
	t.Run("a primary that steps down in the middle of a claim and of an ack makes no suspects", func(t *testing.T) {
		t.Parallel()
		const n = 300
		server := mongotest.Own(t)
		s := newStandIn(t, clientOf(t, options.Client().ApplyURI(server.URL)).Database("test"), mongo.Config{})
		u := newUsurper(t, s, server.URL)
		require.NoError(t, s.Append(t.Context(), made("orders", "r", n)...))
		// Updates and deletes yield after some documents, and then pause.
		require.NoError(t, server.SetParameter(t.Context(), "internalQueryExecYieldIterations", 100))
		require.NoError(t, u.admin.RunCommand(t.Context(), bson.D{
			{Key: "configureFailPoint", Value: "setYieldAllLocksWait"}, {Key: "mode", Value: "alwaysOn"},
			{Key: "data", Value: bson.D{{Key: "namespace", Value: "test.outmill_records"}, {Key: "waitForMillis", Value: 100}}},
		}).Err())
		u.arm("update", func() bool {
			return s.records().FindOne(context.Background(), bson.D{{Key: "grp", Value: readers}, {Key: "stage", Value: 4}}).Err() == nil
		})
		found, err := u.Claim(t.Context(), claimOf(outmill.NewOwnerToken(), n, outmill.OrderNone))
		require.NoError(t, err)
		u.done.Wait()
		require.Positive(t, u.cut.Load(), "the update was not interrupted")
		require.Len(t, found, n)
		for _, r := range found {
			require.Equal(t, [2]int{1, 0}, [2]int{r.Claims, r.Expiries})
		}

		left := func() int64 {
			count, err := s.records().EstimatedDocumentCount(context.Background())
			if err != nil {
				return n
			}
			return count
		}
		u.arm("delete", func() bool { return left() < n })
		require.NoError(t, u.Ack(t.Context(), "", leasesOf(found)))
		u.done.Wait()
		require.Positive(t, u.cut.Load(), "the delete was not interrupted")
		require.Zero(t, left())
	})

	// The server returns these errors when it shuts down or steps down. With an error of the
	// write concern, it has done all of the work.
	t.Run("a claim and an ack are repeated if the server is not the primary any more", func(t *testing.T) {
		t.Parallel()
		server := mongotest.Own(t)
		s := newStandIn(t, clientOf(t, options.Client().ApplyURI(server.URL)).Database("test"), mongo.Config{})
		codes := []int{10107, 11602, 13435, 189, 11600, 91}
		for i, code := range codes[:testenv.Steps(2, len(codes))] {
			app := fmt.Sprint("victim", code)
			store := newStore(t, victimOf(t, server.URL, app), mongo.Config{Database: "test", WithoutChangeStream: true})
			failure := bson.D{{Key: "errorCode", Value: code}}
			if i%2 == 1 {
				failure = bson.D{{Key: "writeConcernError", Value: bson.D{{Key: "code", Value: code}, {Key: "errmsg", Value: "no primary any more"}}}}
			}
			topic := fmt.Sprint("topic", code)
			require.NoError(t, s.Append(t.Context(), made(topic, "r", 5)...))
			failing(t, s.Client(), app, 1, append(bson.D{{Key: "failCommands", Value: bson.A{"update"}}}, failure...))
			found, err := store.Claim(t.Context(), claimOf(outmill.NewOwnerToken(), 5, outmill.OrderNone, topic))
			require.NoError(t, err, code)
			require.Len(t, found, 5)
			for _, r := range found {
				require.Equal(t, [2]int{1, 0}, [2]int{r.Claims, r.Expiries})
			}
			failing(t, s.Client(), app, 1, append(bson.D{{Key: "failCommands", Value: bson.A{"delete"}}}, failure...))
			require.NoError(t, store.Ack(t.Context(), "", leasesOf(found)), code)
			require.Empty(t, listed(t, s))
		}
	})
}
