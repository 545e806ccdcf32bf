package kafka_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/internal/testenv/kafkatest"
	"github.com/outmill/outmill/kafka"
)

type pointerMarshaler struct{ kafka.DefaultMarshaler }

func TestConfig(t *testing.T) {
	t.Parallel()

	t.Run("a configuration that makes no sense is refused by the name of its field", func(t *testing.T) {
		t.Parallel()
		token := func(context.Context) (string, error) { return "", nil }
		good := []string{"127.0.0.1:1"}
		for name, c := range map[string]struct {
			config kafka.Config
			want   []string
		}{
			"no brokers":      {want: []string{"kafka.Config.Brokers"}},
			"an empty broker": {config: kafka.Config{Brokers: []string{"a:1", " "}}, want: []string{"kafka.Config.Brokers[1]"}},
			"no address":      {config: kafka.Config{Brokers: []string{"a:port"}}, want: []string{"kafka.Config.Brokers", "a:port"}},
			"a nil marshaler": {config: kafka.Config{Brokers: good, Marshaler: (*pointerMarshaler)(nil)},
				want: []string{"kafka.Config.Marshaler"}},
			"an unknown codec":   {config: kafka.Config{Brokers: good, Compression: "rar"}, want: []string{"Config.Compression", `"rar"`}},
			"a negative timeout": {config: kafka.Config{Brokers: good, DeliveryTimeout: -1}, want: []string{"Config.DeliveryTimeout"}},
			"a timeout too short": {config: kafka.Config{Brokers: good, DeliveryTimeout: time.Millisecond},
				want: []string{"Config.DeliveryTimeout", "100ms"}},
			"negative patience":    {config: kafka.Config{Brokers: good, TopicTimeout: -1}, want: []string{"Config.TopicTimeout"}},
			"a tiny message limit": {config: kafka.Config{Brokers: good, MaxMessageBytes: 1}, want: []string{"Config.MaxMessageBytes"}},
			"a huge message limit": {config: kafka.Config{Brokers: good, MaxMessageBytes: 1 << 30}, want: []string{"Config.MaxMessageBytes"}},
			"negative buffers": {config: kafka.Config{Brokers: good, MaxBufferedRecords: -1, MaxBufferedBytes: -1},
				want: []string{"Config.MaxBufferedRecords", "Config.MaxBufferedBytes"}},
			"credentials alone": {config: kafka.Config{Brokers: good, SASL: kafka.SASL{Username: "u"}},
				want: []string{"Config.SASL.Mechanism"}},
			"an unknown mechanism": {config: kafka.Config{Brokers: good, SASL: kafka.SASL{Mechanism: "NTLM"}},
				want: []string{"Config.SASL.Mechanism", "NTLM"}},
			"no password": {config: kafka.Config{Brokers: good, SASL: kafka.SASL{Mechanism: kafka.SASLPlain, Username: "u"}},
				want: []string{"Config.SASL.Username", "Password"}},
			"a token for PLAIN": {
				config: kafka.Config{Brokers: good, SASL: kafka.SASL{Mechanism: kafka.SASLPlain, Username: "u", Password: "p", Token: token}},
				want:   []string{"Config.SASL.Token"}},
			"no token": {config: kafka.Config{Brokers: good, SASL: kafka.SASL{Mechanism: kafka.SASLOAuthBearer}},
				want: []string{"Config.SASL.Token"}},
			"a user for a token": {
				config: kafka.Config{Brokers: good, SASL: kafka.SASL{Mechanism: kafka.SASLOAuthBearer, Token: token, Username: "u"}},
				want:   []string{"Config.SASL.Username"}},
			"two mistakes": {config: kafka.Config{Compression: "rar"}, want: []string{"Config.Brokers", "Config.Compression"}},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				pub, err := kafka.NewPublisher(c.config, nil)
				require.ErrorIs(t, err, outmill.ErrInvalidConfig)
				require.Nil(t, pub)
				for _, want := range c.want {
					require.ErrorContains(t, err, want)
				}
			})
		}
	})

	t.Run("a zero publisher returns an error", func(t *testing.T) {
		t.Parallel()
		var none *kafka.Publisher
		for name, pub := range map[string]*kafka.Publisher{"nil": none, "zero": {}} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				require.ErrorIs(t, pub.Publish("topic", newMessage("x")), outmill.ErrInvalidConfig)
				require.ErrorIs(t, pub.Ping(t.Context()), outmill.ErrInvalidConfig)
				require.NoError(t, pub.Close())
			})
		}
	})

	t.Run("the client's own log goes to the logger", func(t *testing.T) {
		t.Parallel()
		logger := journal.New()
		brokers := kafkatest.Fake(t).Addrs
		pub, err := kafka.NewPublisher(kafka.Config{Brokers: brokers}, logger)
		require.NoError(t, err)
		require.NoError(t, pub.Publish(kafkatest.Topic(t), newMessage("the payload")))
		require.NoError(t, pub.Close())
		logger.Wait(t, "kafka client: ")
		require.Empty(t, logger.Find("the payload"))
	})
}
