package mongo_test

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/internal/testenv/proxy"
	"github.com/outmill/outmill/mongo"
)

const (
	// takes is in the request that takes a turn, and ofTurns in each request about turns.
	takes   = "findAndModify"
	ofTurns = "outmill_locks"
)

// relayed is a store behind a proxy, whose turns do not end by themselves.
type relayed struct {
	*mongo.Store
	*proxy.Proxy
	other stand
	logs  *journal.Journal
	t     *testing.T
}

func newRelayed(t *testing.T) relayed {
	t.Helper()
	other := newStand(t, mongo.Config{})
	at, err := url.Parse(mongotest.Server(t))
	require.NoError(t, err)
	p, logs := proxy.New(t, at.Host), journal.New()
	client := clientOf(t, options.Client().SetHosts([]string{p.Addr()}).SetDirect(true))
	store, err := mongo.New(client, mongo.Config{Database: other.db.Name()}, logs)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	mongo.SetTurn(store, time.Hour)
	return relayed{store, p, other, logs, t}
}

// canceled is a claim that is canceled when its take of the turn is held back. ended is closed when
// the claim has returned.
func (r relayed) canceled(req outmill.ClaimRequest, held *proxy.Held) (ended <-chan struct{}) {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	defer cancel()
	done := make(chan struct{})
	var err error
	go func() {
		defer close(done)
		_, err = r.Claim(ctx, req)
	}()
	<-held.Came()
	cancel()
	r.t.Cleanup(func() {
		<-done
		require.ErrorIs(r.t, err, context.Canceled)
	})
	return done
}

func TestStore_Turn(t *testing.T) {
	t.Parallel()

	t.Run("a take of the turn that arrives after a later one was confirmed keeps nobody from the topic", func(t *testing.T) {
		t.Parallel()
		for name, blocked := range map[string]bool{"by one update": false, "by a transaction that notes held records": true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				r := newRelayed(t)
				req := claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey, "orders")
				require.NoError(t, r.Append(t.Context(), keyed("key", "first", "held")...))
				if blocked {
					require.Len(t, claimed(t, r.other, claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey, "orders")), 1)
				}
				held := r.Hold(takes)
				require.Equal(t, blocked, len(claimed(t, r, req)) == 0)
				<-held.Came()
				held.Deliver()
				require.NoError(t, r.Append(t.Context(), keyed("other", "second")...))
				req.Owner = outmill.NewOwnerToken()
				require.Equal(t, []string{"second"}, namesOf(claimed(t, r.other, req)))
			})
		}
	})

	t.Run("takes of the turn that arrive after their claim was canceled keep nobody from the topic", func(t *testing.T) {
		t.Parallel()
		r := newRelayed(t)
		require.NoError(t, r.Append(t.Context(), one("first"), one("second")))
		req := claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey, "orders")
		earlier, later := r.Hold(takes), r.Hold(takes)
		<-r.canceled(req, later)
		later.Deliver()
		require.Len(t, claimed(t, r.other, req), 1)
		earlier.Deliver()
		require.Len(t, claimed(t, r.other, req), 1)
	})

	t.Run("a turn that has ended is not valid again when an earlier take of it arrives", func(t *testing.T) {
		t.Parallel()
		s := newStand(t, mongo.Config{})
		mine, other := mongo.NewTurn(s.Store, readers, "orders"), mongo.NewTurn(s.Store, readers, "orders")
		taken, err := mine.Take(t.Context(), time.Millisecond)
		require.NoError(t, err)
		require.True(t, taken)
		require.Eventually(t, func() bool {
			taken, err := other.Take(t.Context(), time.Hour)
			return err == nil && taken
		}, time.Minute, time.Millisecond, "the turn ends")
		require.NoError(t, other.Confirm(t.Context()))
		taken, err = mine.Again().Take(t.Context(), time.Hour)
		require.NoError(t, err)
		require.True(t, taken, "nothing tells the server that the take is an earlier one")
		require.Error(t, mine.Confirm(t.Context()), "another claim has been there")
	})

	t.Run("a doubtful turn that is given back keeps no other claim from the topic", func(t *testing.T) {
		t.Parallel()
		r := newRelayed(t)
		require.NoError(t, r.Append(t.Context(), one("first"), one("second"), one("third")))
		req := claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey, "orders")
		require.Len(t, claimed(t, r.other, req), 1)
		held := r.Hold(takes)
		<-r.canceled(req, held)
		require.Len(t, claimed(t, r.other, req), 1)
		require.Len(t, claimed(t, r, req), 1)
		held.Deliver()
	})

	t.Run("a claim in order whose turn was written and not confirmed leaves the topic to others", func(t *testing.T) {
		t.Parallel()
		const app = "unsure"
		server := mongotest.Own(t)
		admin := clientOf(t, options.Client().ApplyURI(server.URL))
		client := clientOf(t, options.Client().ApplyURI(server.URL).SetAppName(app).SetRetryWrites(false).
			SetServerMonitoringMode(options.ServerMonitoringModePoll).SetHeartbeatInterval(500*time.Millisecond))
		s := newStandIn(t, client.Database("test"), mongo.Config{})
		mongo.SetTurn(s.Store, time.Hour)
		other := newStore(t, admin, mongo.Config{Database: "test"})
		for name, code := range map[string]int{
			"the primary steps down": 11602, "an operator ends the operation": 11601, "the other members do not answer": 64,
		} {
			t.Run(name, func(t *testing.T) {
				require.NoError(t, s.Append(t.Context(), &outmill.Record{Topic: name}))
				failing(t, admin, app, 1, bson.D{
					{Key: "failCommands", Value: bson.A{takes}},
					{Key: "writeConcernError", Value: bson.D{{Key: "code", Value: code}, {Key: "errmsg", Value: name}}},
				})
				req := claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey, name)
				found, err := s.Claim(t.Context(), req)
				require.True(t, err == nil || len(found) == 0)
				require.Len(t, append(found, claimed(t, other, req)...), 1)
			})
		}
	})

	t.Run("a store that is closed gives back a turn for the last time", func(t *testing.T) {
		t.Parallel()
		r := newRelayed(t)
		require.NoError(t, r.Append(t.Context(), one("order")))
		req := claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey, "orders")
		held := r.Hold(takes)
		unanswered, lasting := r.Hold(ofTurns), r.Hold(ofTurns)
		<-r.canceled(req, held)
		<-unanswered.Came()
		<-lasting.Came()
		require.NoError(t, r.Close())
		held.Deliver()
		require.Len(t, claimed(t, r.other, req), 1)
		require.Empty(t, r.logs.Lines(watermill.ErrorLogLevel))
	})

	t.Run("a store that cannot give a turn back logs it once", func(t *testing.T) {
		t.Parallel()
		r := newRelayed(t)
		require.NoError(t, r.Append(t.Context(), one("order")))
		held := r.Hold(takes)
		r.Hold(ofTurns)
		background := r.Hold(ofTurns)
		r.Hold(ofTurns)
		<-r.canceled(claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey, "orders"), held)
		<-background.Came()
		require.NoError(t, r.Close())
		logged := r.logs.Lines(watermill.ErrorLogLevel)
		require.Len(t, logged, 1)
		require.Equal(t, "orders", logged[0].Fields["topic"])
		require.Equal(t, readers, logged[0].Fields["group"])
	})
}
