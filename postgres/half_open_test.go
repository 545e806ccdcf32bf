package postgres_test

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/internal/testenv/proxy"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/subscriber"
)

// behindProxy opens a store whose connections go through a proxy, and one whose connections do not.
func behindProxy(t *testing.T, closeWithin, heartbeat time.Duration) (p *proxy.Proxy, through, direct *postgres.Store) {
	t.Helper()
	database := postgrestest.Database(t)
	u, err := url.Parse(database)
	require.NoError(t, err)
	p = proxy.New(t, u.Host)
	u.Host = p.Addr()
	direct, err = postgres.Open(t.Context(), database, postgres.Config{EnsureSchema: true, NotifyInterval: time.Millisecond}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, direct.Close()) })
	through, err = postgres.Open(t.Context(), u.String(), postgres.Config{}, nil)
	require.NoError(t, err)
	through.Impatient(closeWithin, heartbeat)
	return p, through, direct
}

func listeningSessions(t *testing.T, store *postgres.Store) int {
	t.Helper()
	return valueOf[int](t, store.Pool(), `SELECT count(*) FROM pg_stat_activity WHERE `+postgrestest.Listening)
}

func TestStore_HalfOpen(t *testing.T) {
	t.Parallel()
	t.Run("a listening connection that carries nothing any more is made again", func(t *testing.T) {
		t.Parallel()
		p, through, direct := behindProxy(t, 100*time.Millisecond, 300*time.Millisecond)
		defer func() { require.NoError(t, through.Close()) }()
		require.NoError(t, direct.RegisterGroup(t.Context(), outmill.Registration{}))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		woken := make(chan string, 1000)
		through.Wake(ctx, func(topic string) { woken <- topic })
		require.Eventually(t, func() bool { return listeningSessions(t, direct) == 1 }, patience, 5*time.Millisecond)
		p.HalfOpen()
		// The server keeps the session that it has not heard the end of.
		require.Eventually(t, func() bool { return listeningSessions(t, direct) == 2 }, patience, 5*time.Millisecond)
		deadline := time.After(patience)
		for n := 1; ; n++ {
			// A busy machine may answer the new connection too late for this heartbeat, so that it is made once more.
			require.NoError(t, direct.Append(t.Context(), made("news", fmt.Sprintf("m%d-", n), 1)...))
			select {
			case topic := <-woken:
				if topic == "news" {
					return
				}
			case <-time.After(time.Second):
			case <-deadline:
				require.FailNow(t, "the new connection does not listen")
			}
		}
	})
	t.Run("Close ends while a call waits on a connection that carries nothing any more", func(t *testing.T) {
		t.Parallel()
		closesHalfOpen(t, 300*time.Millisecond, 10*time.Second)
	})
	t.Run("Close ends within 15 s with the default settings, 20 times", func(t *testing.T) {
		t.Parallel()
		testenv.Long(t, "20 stores that are closed while their connections carry nothing any more")
		for range 20 {
			t.Run("run", func(t *testing.T) {
				t.Parallel()
				closesHalfOpen(t, postgres.CloseWithin, 15*time.Second)
			})
		}
	})
}

// closesHalfOpen closes a store whose subscriber was not closed.
func closesHalfOpen(t *testing.T, closeWithin, atMost time.Duration) {
	t.Helper()
	p, through, direct := behindProxy(t, closeWithin, 10*time.Second)
	sub, err := subscriber.New(through, subscriber.Config{CloseTimeout: time.Second}, nil)
	require.NoError(t, err)
	messages, err := sub.Subscribe(t.Context(), "orders")
	require.NoError(t, err)
	require.NoError(t, direct.Append(t.Context(), made("orders", "m", 1)...))
	var msg *message.Message
	select {
	case msg = <-messages:
	case <-time.After(patience):
		require.FailNow(t, "no message")
	}
	p.HalfOpen()
	// Both wait for an answer that does not come.
	hanging := make(chan error, 2)
	for range 2 {
		go func() {
			_, err := through.Stats(context.WithoutCancel(t.Context()), 10)
			hanging <- err
		}()
	}
	msg.Ack()
	require.Eventually(t, func() bool { return through.Pool().Stat().AcquiredConns() > 0 }, patience, time.Millisecond)
	began := time.Now()
	closed := make(chan error, 1)
	go func() { closed <- through.Close() }()
	select {
	case err := <-closed:
		require.NoError(t, err)
	case <-time.After(atMost):
		require.FailNow(t, "the store is not closed", "after %s", time.Since(began))
	}
	for range 2 {
		<-hanging
	}
	_ = sub.Close()
}
