package allstores

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/proxy"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/subscriber"
)

func TestStop_Away(t *testing.T) {
	t.Parallel()

	t.Run("a router's Run returns within CloseTimeout and a second while the database", func(t *testing.T) {
		t.Parallel()
		for name, sever := range map[string]func(*proxy.Proxy){
			"is away":         (*proxy.Proxy).Refuse,
			"does not answer": (*proxy.Proxy).Deafen,
		} {
			for _, store := range []string{"PostgreSQL", "MongoDB"} {
				for _, way := range []string{byContext, byClose} {
					t.Run(name+", on "+store+" by "+way, func(t *testing.T) {
						t.Parallel()
						stopAway(t, addresses[store](t), way, sever)
					})
				}
			}
		}
	})
}

func stopAway(t *testing.T, address, way string, sever func(*proxy.Proxy)) {
	t.Helper()
	openAt(t, address)
	through, err := url.Parse(address)
	require.NoError(t, err)
	p := proxy.New(t, through.Host)
	through.Host = p.Addr()
	if query := through.Query(); through.Scheme == "mongodb" {
		query.Del("replicaSet")
		query.Set("directConnection", "true")
		through.RawQuery = query.Encode()
	}
	store, err := outmill.Open(t.Context(), through.String(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	const closeTimeout = 2 * time.Second
	sub, err := subscriber.New(store, subscriber.Config{CloseTimeout: closeTimeout}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = sub.Close() })
	router, err := message.NewRouter(message.RouterConfig{}, nil)
	require.NoError(t, err)
	began, finish := make(chan bool), make(chan bool)
	router.AddConsumerHandler("bill", topic, sub, func(*message.Message) error {
		began <- true
		<-finish
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- router.Run(ctx) }()
	<-router.Running()
	pub, err := publisher.New(store, publisher.Config{}, nil)
	require.NoError(t, err)
	require.NoError(t, pub.Publish(topic, message.NewMessage(watermill.NewUUID(), nil)))
	<-began
	sever(p)
	stopped := time.Now()
	if way == byClose {
		go func() { _ = router.Close() }()
	} else {
		cancel()
	}
	close(finish)
	require.NoError(t, <-ended)
	// A Run that waited for the outcomes would take ten seconds more.
	require.Less(t, time.Since(stopped), closeTimeout+8*time.Second)
}
