package allstores

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/inbox"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/subscriber"
	"github.com/outmill/outmill/tenants"
)

// openTenants opens so many stores of a provider, and returns them as tenants.
func openTenants(t *testing.T, provider string, n int) (list []tenants.Tenant) {
	t.Helper()
	for i := range n {
		store := stores[provider](t)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		list = append(list, tenants.Tenant{Key: fmt.Sprintf("%s-%02d", provider, i), Store: store})
	}
	return list
}

// openSet makes a set, and waits until the stores of its n tenants are ready: a busy machine may need longer than New waits for
// them, and longer for a call than it usually may take.
func openSet(t *testing.T, config tenants.Config, n int) *tenants.Set {
	t.Helper()
	config.CallTimeout = patience
	set, err := tenants.New(t.Context(), config, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, set.Close()) })
	require.Eventually(t, func() bool { return len(set.Keys()) == n }, patience, time.Millisecond)
	return set
}

func TestTenants(t *testing.T) {
	t.Parallel()
	fleets := map[string]map[string]int{
		"20 tenants on PostgreSQL": {"PostgreSQL": 20},
		"5 tenants on MongoDB":     {"MongoDB": 5},
		"several providers":        {"SQLite": 3, "PostgreSQL": 3, "MongoDB": 2},
	}
	for name, fleet := range fleets {
		t.Run(name+" are one store, each record where it belongs", func(t *testing.T) {
			t.Parallel()
			var list tenants.Static
			for provider, n := range fleet {
				list = append(list, openTenants(t, provider, n)...)
			}
			handleEverywhere(t, openSet(t, tenants.Config{Discovery: list, Ensure: true}, len(list)), list)
		})
	}
}

// handleEverywhere publishes to all tenants, and handles the messages by an inbox, whose handler
// publishes to the tenant that its message is of.
func handleEverywhere(t *testing.T, set *tenants.Set, list []tenants.Tenant) {
	t.Helper()
	const each = 4
	pub, err := publisher.New(set, publisher.Config{}, nil)
	require.NoError(t, err)
	box, err := inbox.New(set, inbox.Config{Consumer: "billing"})
	require.NoError(t, err)
	cfg := quick()
	cfg.Order = outmill.OrderKey
	cfg.CloseTimeout = patience
	sub, err := subscriber.New(set, cfg, nil)
	require.NoError(t, err)
	messages, err := sub.Subscribe(t.Context(), "orders")
	require.NoError(t, err)
	for _, tenant := range list {
		for i := range each {
			msg := message.NewMessage(fmt.Sprintf("%s/%d", tenant.Key, i), nil)
			outmill.SetTenantID(msg, tenant.Key)
			outmill.SetKey(msg, "the same in all")
			require.NoError(t, pub.Publish("orders", msg))
		}
	}
	handle := box.Middleware(func(msg *message.Message) ([]*message.Message, error) {
		return nil, pub.WithContext(msg.Context()).Publish("done", message.NewMessage(msg.UUID, nil))
	})
	seen := map[string]int{}
	for len(seen) < each*len(list) {
		select {
		case msg := <-messages:
			delivery, _ := outmill.Delivery(msg.Context())
			require.Equal(t, delivery.Store, strings.Split(msg.UUID, "/")[0])
			if _, err := handle(msg); err != nil {
				msg.Nack()
				continue
			}
			seen[msg.UUID]++
			msg.Ack()
		case <-time.After(patience):
			require.FailNow(t, "nothing comes", "%d of %d came: %v", len(seen), each*len(list), set.Status())
		}
	}
	require.NoError(t, sub.Close())
	for _, tenant := range list {
		left, err := tenant.Store.List(t.Context(), outmill.ListQuery{Content: true})
		require.NoError(t, err)
		require.Len(t, left, each, tenant.Key)
		for _, rec := range left {
			require.Equal(t, "done", rec.Topic, tenant.Key)
			require.True(t, strings.HasPrefix(rec.MessageID, tenant.Key+"/"), rec.MessageID)
		}
	}
}
