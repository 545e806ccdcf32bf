package kafka_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/certificate"
	"github.com/outmill/outmill/internal/testenv/kafkaengine"
	"github.com/outmill/outmill/internal/testenv/kafkatest"
	"github.com/outmill/outmill/kafka"
)

// authenticates uses the listener that requires TLS and SASL.
func authenticates(t *testing.T, engine *kafkaengine.Engine) {
	topic := kafkatest.CreateTopic(t, []string{engine.Addr}, 1)
	brokers := []string{engine.SecureAddr}
	token := func(context.Context) (string, error) { return unsecuredToken(kafkaengine.User), nil }
	sent := 0
	for _, s := range []kafka.SASL{
		{Mechanism: kafka.SASLPlain, Username: kafkaengine.User, Password: kafkaengine.Password},
		{Mechanism: kafka.SASLScramSHA256, Username: kafkaengine.User, Password: kafkaengine.Password},
		{Mechanism: kafka.SASLScramSHA512, Username: kafkaengine.User, Password: kafkaengine.Password},
		{Mechanism: kafka.SASLOAuthBearer, Token: token},
	} {
		pub := newPublisher(t, brokers, kafka.Config{TLS: engine.Certificate.Client(), SASL: s})
		require.NoError(t, pub.Ping(t.Context()), s.Mechanism)
		require.NoError(t, pub.Publish(topic, newMessage("x")), s.Mechanism)
		sent++
	}
	require.Len(t, kafkatest.ReadAll(t, []string{engine.Addr}, topic), sent)
	wrong := kafka.SASL{Mechanism: kafka.SASLScramSHA512, Username: kafkaengine.User, Password: "wrong"}
	requireRefused(t, brokers, kafka.Config{TLS: engine.Certificate.Client(), SASL: wrong})
	requireRefused(t, brokers, kafka.Config{TLS: engine.Certificate.Client()})
	requireRefused(t, brokers, kafka.Config{})
	other, err := certificate.New()
	require.NoError(t, err)
	requireRefusedFor(t, brokers,
		kafka.Config{TLS: other.Client(),
			SASL: kafka.SASL{Mechanism: kafka.SASLPlain, Username: kafkaengine.User, Password: kafkaengine.Password}},
		"certificate signed by unknown authority")
}

// unsecuredToken returns a JSON web token without a signature.
func unsecuredToken(user string) string {
	encode := base64.RawURLEncoding.EncodeToString
	now := time.Now().Unix()
	claims := fmt.Sprintf(`{"sub":%q,"iat":%d,"exp":%d}`, user, now, now+3600)
	return encode([]byte(`{"alg":"none"}`)) + "." + encode([]byte(claims)) + "."
}

// requireRefusedFor is requireRefused for an error with a given text. On a busy machine the
// call may time out before the brokers answer; then it tries again.
func requireRefusedFor(t *testing.T, brokers []string, config kafka.Config, want string) {
	t.Helper()
	config.DeliveryTimeout = time.Second
	for began := time.Now(); ; config.DeliveryTimeout *= 2 {
		err := requireRefused(t, brokers, config)
		if time.Since(began) > soon/2 || strings.Contains(err.Error(), want) {
			require.ErrorContains(t, err, want)
			return
		}
	}
}

// requireRefused requires an error that comes soon, says what to check, and contains no
// secret.
func requireRefused(t *testing.T, brokers []string, config kafka.Config) error {
	t.Helper()
	if config.DeliveryTimeout == 0 {
		config.DeliveryTimeout = time.Second
	}
	pub := newPublisher(t, brokers, config)
	began := time.Now()
	failed := failedAlone(t, pub.Publish("topic", newMessage("x")))
	require.Less(t, time.Since(began), soon)
	require.False(t, outmill.IsPermanent(failed.Err))
	require.NotErrorIs(t, failed.Err, outmill.ErrTopicUnavailable)
	for _, want := range []string{brokers[0], "TLS", "SASL"} {
		require.ErrorContains(t, failed.Err, want)
	}
	if config.SASL.Password != "" {
		require.NotContains(t, failed.Err.Error(), config.SASL.Password)
	}
	return failed.Err
}

func TestSecurity(t *testing.T) {
	t.Parallel()

	t.Run("a publisher authenticates with a password", func(t *testing.T) {
		t.Parallel()
		for _, mechanism := range []kafka.SASLMechanism{kafka.SASLPlain, kafka.SASLScramSHA256, kafka.SASLScramSHA512} {
			t.Run(string(mechanism), func(t *testing.T) {
				t.Parallel()
				brokers := kafkatest.Fake(t, kfake.EnableSASL(), kfake.Superuser(string(mechanism), "me", "my-secret")).Addrs
				right := kafka.SASL{Mechanism: mechanism, Username: "me", Password: "my-secret"}
				pub := newPublisher(t, brokers, kafka.Config{SASL: right})
				require.NoError(t, pub.Ping(t.Context()))
				require.NoError(t, pub.Publish(kafkatest.Topic(t), newMessage("x")))
				requireRefused(t, brokers, kafka.Config{SASL: kafka.SASL{Mechanism: mechanism, Username: "me", Password: "guessed-wrong"}})
				requireRefused(t, brokers, kafka.Config{})
			})
		}
	})

	t.Run("a token that cannot be had is reported", func(t *testing.T) {
		t.Parallel()
		brokers := kafkatest.Fake(t).Addrs
		token := func(context.Context) (string, error) { return "", errors.New("no token today") }
		pub := newPublisher(t, brokers,
			kafka.Config{DeliveryTimeout: time.Second, SASL: kafka.SASL{Mechanism: kafka.SASLOAuthBearer, Token: token}})
		require.Error(t, pub.Publish("topic", newMessage("x")))
	})

	t.Run("a publisher talks TLS to brokers that it trusts", func(t *testing.T) {
		t.Parallel()
		shown, err := certificate.New()
		require.NoError(t, err)
		server, err := shown.Server()
		require.NoError(t, err)
		brokers, topic := kafkatest.Fake(t, kfake.TLS(server)).Addrs, kafkatest.Topic(t)
		require.NoError(t, newPublisher(t, brokers, kafka.Config{TLS: shown.Client()}).Publish(topic, newMessage("x")))

		other, err := certificate.New()
		require.NoError(t, err)
		requireRefusedFor(t, brokers, kafka.Config{TLS: other.Client()}, "certificate signed by unknown authority")
		requireRefusedFor(t, brokers, kafka.Config{TLS: &tls.Config{MinVersion: tls.VersionTLS12}}, "certificate signed by unknown authority")
		_, port, err := net.SplitHostPort(brokers[0])
		require.NoError(t, err)
		byName := []string{net.JoinHostPort("localhost", port)}
		requireRefusedFor(t, byName, kafka.Config{TLS: shown.Client()}, "wanted to match localhost")
		requireRefused(t, brokers, kafka.Config{})
	})
}
