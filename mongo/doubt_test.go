package mongo_test

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/internal/testenv/proxy"
	"github.com/outmill/outmill/mongo"
)

func TestStore_Doubt(t *testing.T) {
	t.Parallel()

	// The server leases the records that a claim chose, but its answer is lost, and the server is
	// gone when the claim asks again.
	t.Run("a claim in order does not skip records that it may have leased itself", func(t *testing.T) {
		t.Parallel()
		calm, server := ownStand(t, mongo.Config{})
		require.NoError(t, calm.Append(t.Context(), made("orders", "one", 1)...))
		require.NoError(t, calm.Append(t.Context(), made("orders", "two", 1)...))
		at, err := url.Parse(server.URL)
		require.NoError(t, err)
		p := proxy.New(t, at.Host)
		var leasings int
		started := func(_ context.Context, e *event.CommandStartedEvent) {
			if at, _ := e.Command.Lookup("update").StringValueOK(); at != "outmill_records" {
				return
			}
			switch leasings++; leasings {
			case 1:
				p.LoseAnswers()
			case 2:
				require.NoError(t, server.Kill(t.Context()))
				require.NoError(t, server.Start(t.Context()))
			}
		}
		client := clientOf(t, options.Client().SetHosts([]string{p.Addr()}).SetDirect(true).SetMonitor(&event.CommandMonitor{Started: started}))
		store := newStore(t, client, mongo.Config{Database: calm.db.Name()})
		found, err := store.Claim(t.Context(), claimOf(outmill.NewOwnerToken(), 1, outmill.OrderKey, "orders"))
		require.NoError(t, err)
		require.Greater(t, leasings, 2)
		require.Equal(t, []string{"one-0"}, namesOf(found))
	})

	// The driver's WithTransaction would wait for the answer without an end.
	t.Run("a commit without an answer ends soon after its context", func(t *testing.T) {
		t.Parallel()
		calm := newStand(t, mongo.Config{})
		at, err := url.Parse(mongotest.Server(t))
		require.NoError(t, err)
		p := proxy.New(t, at.Host)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		started := func(_ context.Context, e *event.CommandStartedEvent) {
			if e.CommandName == "commitTransaction" {
				p.Deafen()
				cancel()
			}
		}
		client := clientOf(t, options.Client().SetHosts([]string{p.Addr()}).SetDirect(true).SetMonitor(&event.CommandMonitor{Started: started}))
		store := newStore(t, client, mongo.Config{Database: calm.db.Name()})
		ended := make(chan error, 1)
		go func() {
			ended <- store.InTx(ctx, func(ctx context.Context) error { return store.Append(ctx, one("doubtful")) })
		}()
		select {
		case err := <-ended:
			require.Error(t, err)
		case <-time.After(30 * time.Second):
			p.CutAll()
			require.FailNow(t, "InTx still waits for the answer to its commit", "%v", <-ended)
		}
		p.CutAll()
	})
}
