package jetstream

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/certificate"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	shown, err := certificate.New()
	require.NoError(t, err)
	other, err := certificate.New()
	require.NoError(t, err)
	config, err := shown.Server()
	require.NoError(t, err)
	secure, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
		TLSConfig: config, TLSTimeout: 30,
	})
	require.NoError(t, err)
	secure.Start()
	t.Cleanup(func() { secure.Shutdown(); secure.WaitForShutdown() })
	require.True(t, secure.ReadyForConnections(30*time.Second))
	plain := startServer(t, t.TempDir(), 0)

	// ping returns the first error that has a cause, or nil once the server has answered.
	ping := func(t *testing.T, url string, options ...nats.Option) error {
		pub, err := Connect(url, append(options, nats.ReconnectWait(20*time.Millisecond), nats.Timeout(20*time.Second))...)
		require.NoError(t, err)
		defer func() { require.NoError(t, pub.Close()) }()
		var last error
		require.Eventually(t, func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			// A cause that comes after the ping's look is in the next error.
			known := pub.lastError() != nil
			last = pub.Ping(ctx)
			return last == nil || known
		}, 60*time.Second, 20*time.Millisecond)
		return last
	}

	t.Run("a server whose certificate is trusted is reached", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, ping(t, "tls://"+secure.Addr().String(), nats.Secure(shown.Client())))
	})

	for what, c := range map[string]struct {
		url     string
		options []nats.Option
		cause   string
	}{
		"a certificate of an unknown authority": {"tls://" + secure.Addr().String(), nil, "certificate"},
		"a certificate of another authority":    {"tls://" + secure.Addr().String(), []nats.Option{nats.Secure(other.Client())}, "certificate"},
		"a server without TLS":                  {"tls://" + plain.Addr().String(), nil, "secure connection not available"},
	} {
		t.Run("the error names the cause: "+what, func(t *testing.T) {
			t.Parallel()
			err := ping(t, c.url, c.options...)
			require.ErrorIs(t, err, outmill.ErrBrokerUnavailable)
			require.ErrorContains(t, err, c.cause)
		})
	}
}
