package mongo_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/mongotest"
	"github.com/outmill/outmill/internal/testenv/proxy"
	"github.com/outmill/outmill/mongo"
	"github.com/outmill/outmill/subscriber"
)

func TestStore_HalfOpen(t *testing.T) {
	t.Parallel()
	t.Run("Close ends while its connections carry nothing any more", func(t *testing.T) {
		t.Parallel()
		if !testenv.All() {
			t.Log(testenv.Shorter("a store is closed 20 times while its connections carry nothing any more"))
		}
		for range testenv.Steps(1, 20) {
			t.Run("run", func(t *testing.T) {
				t.Parallel()
				closesHalfOpen(t)
			})
		}
	})
}

// closesHalfOpen closes a store whose subscriber was not closed.
func closesHalfOpen(t *testing.T) {
	t.Helper()
	calm := newStand(t, mongo.Config{})
	at, err := url.Parse(mongotest.Server(t))
	require.NoError(t, err)
	p := proxy.New(t, at.Host)
	through, err := mongo.Open(t.Context(), "mongodb://"+p.Addr()+"/?directConnection=true", mongo.Config{Database: calm.db.Name()}, nil)
	require.NoError(t, err)
	sub, err := subscriber.New(through, subscriber.Config{CloseTimeout: time.Second}, nil)
	require.NoError(t, err)
	messages, err := sub.Subscribe(t.Context(), "orders")
	require.NoError(t, err)
	require.NoError(t, calm.Append(t.Context(), made("orders", "one", 1)...))
	select {
	case msg := <-messages:
		p.HalfOpen()
		msg.Ack()
	case <-time.After(patience):
		require.FailNow(t, "no message")
	}
	closed := make(chan error, 1)
	go func() { closed <- through.Close() }()
	select {
	case <-closed:
	case <-time.After(15 * time.Second):
		require.FailNow(t, "the store is not closed after 15 s")
	}
	_ = sub.Close()
}
