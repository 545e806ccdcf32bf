package forwarder_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/sqlite"
)

// claimed counts the claims of a store that embeds another one.
type claimed struct {
	*sqlite.Store
	mu          sync.Mutex
	raw, others int
	// asked says that RawClaims returns some.
	asked bool
}

func (c *claimed) RawClaims(outmill.Queue) roles.RawClaims {
	if !c.asked {
		return nil
	}
	return func(ctx context.Context, req outmill.ClaimRequest) ([]roles.RawRecord, error) {
		c.mu.Lock()
		c.raw++
		c.mu.Unlock()
		return c.ClaimRaw(ctx, req)
	}
}

func (c *claimed) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	c.mu.Lock()
	c.others++
	c.mu.Unlock()
	return c.Store.Claim(ctx, req)
}

func (c *claimed) counts() (raw, others bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.raw > 0, c.others > 0
}

func TestForwarder_Raw(t *testing.T) {
	t.Parallel()

	pass := func(string, *message.Message) bool { return true }
	keep := func(_ string, msg *message.Message) (*message.Message, error) { return msg, nil }
	same := func(topic string, _ *message.Message) string { return topic }
	for name, one := range map[string]struct {
		cfg        forwarder.Config
		asked, raw bool
	}{
		"without hooks":                     {forwarder.Config{}, true, true},
		"with Filter":                       {forwarder.Config{Filter: pass}, true, false},
		"with Transform":                    {forwarder.Config{Transform: keep}, true, false},
		"with MapTopic":                     {forwarder.Config{MapTopic: same}, true, false},
		"a Claim of the user's is not left": {forwarder.Config{}, false, false},
	} {
		t.Run("records come raw only where nothing needs messages: "+name, func(t *testing.T) {
			t.Parallel()
			store := &claimed{Store: newStore(t), asked: one.asked}
			register(t, store)
			add(t, store, rec("orders", "k", "m"))
			d := rawDestination{batchDestination: newBatchDestination(t)}
			n, err := newForwarder(t, store, d, one.cfg).Once(t.Context())
			require.NoError(t, err)
			require.Equal(t, 1, n)
			raw, others := store.counts()
			require.Equal(t, one.raw, raw)
			require.Equal(t, one.raw, !others)
			d.requireArrived(t, "m")
		})
	}

	t.Run("OnDead gets the metadata of a raw record", func(t *testing.T) {
		t.Parallel()
		store := &claimed{Store: newStore(t), asked: true}
		register(t, store)
		bad := rec("orders", "k", "bad")
		bad.Metadata = map[string]string{"a": "b", "c": "d"}
		add(t, store, bad)
		d := rawDestination{batchDestination: newBatchDestination(t)}
		d.failOnly(outmill.Permanent(errors.New("never")), "bad")
		dead := make(chan *outmill.Record, 1)
		_, err := newForwarder(t, store, d, forwarder.Config{OnDead: func(rec *outmill.Record, _ string) { dead <- rec }}).Once(t.Context())
		require.NoError(t, err)
		got := <-dead
		require.Equal(t, bad.Metadata, got.Metadata)
		require.Equal(t, bad.Payload, got.Payload)
		raw, others := store.counts()
		require.True(t, raw && !others)
	})
}
