package kafka_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/kafkatest"
	"github.com/outmill/outmill/kafka"
)

type pointerMarshaler struct{ wkafka.DefaultMarshaler }

func TestConfig(t *testing.T) {
	t.Parallel()

	t.Run("a configuration that makes no sense is refused by the name of its field", func(t *testing.T) {
		t.Parallel()
		token := func(context.Context) (string, error) { return "", nil }
		good := wkafka.PublisherConfig{Brokers: []string{"127.0.0.1:1"}}
		with := func(change func(*wkafka.PublisherConfig)) wkafka.PublisherConfig {
			c := good
			change(&c)
			return c
		}
		for name, c := range map[string]struct {
			publisher wkafka.PublisherConfig
			config    kafka.Config
			want      []string
		}{
			"no brokers":      {publisher: wkafka.PublisherConfig{}, want: []string{"PublisherConfig.Brokers"}},
			"an empty broker": {publisher: wkafka.PublisherConfig{Brokers: []string{"a:1", " "}}, want: []string{"PublisherConfig.Brokers"}},
			"no address":      {publisher: wkafka.PublisherConfig{Brokers: []string{"a:port"}}, want: []string{"a:port"}},
			"a nil marshaler": {publisher: with(func(c *wkafka.PublisherConfig) { c.Marshaler = (*pointerMarshaler)(nil) }),
				want: []string{"PublisherConfig.Marshaler"}},
			"sarama's settings": {publisher: with(func(c *wkafka.PublisherConfig) { c.OverwriteSaramaConfig = sarama.NewConfig() }),
				want: []string{"OverwriteSaramaConfig", "kafka.Config"}},
			"OpenTelemetry": {publisher: with(func(c *wkafka.PublisherConfig) { c.OTELEnabled = true }),
				want: []string{"OTELEnabled", "outmill.SetTrace"}},
			"a tracer": {publisher: with(func(c *wkafka.PublisherConfig) { c.Tracer = wkafka.NewOTELSaramaTracer() }),
				want: []string{"Tracer", "outmill.SetTrace"}},
			"an unknown codec":   {publisher: good, config: kafka.Config{Compression: "rar"}, want: []string{"Config.Compression", `"rar"`}},
			"a negative timeout": {publisher: good, config: kafka.Config{DeliveryTimeout: -1}, want: []string{"Config.DeliveryTimeout"}},
			"a timeout too short": {publisher: good, config: kafka.Config{DeliveryTimeout: time.Millisecond},
				want: []string{"Config.DeliveryTimeout", "100ms"}},
			"negative patience":    {publisher: good, config: kafka.Config{TopicTimeout: -1}, want: []string{"Config.TopicTimeout"}},
			"a tiny message limit": {publisher: good, config: kafka.Config{MaxMessageBytes: 1}, want: []string{"Config.MaxMessageBytes"}},
			"a huge message limit": {publisher: good, config: kafka.Config{MaxMessageBytes: 1 << 30}, want: []string{"Config.MaxMessageBytes"}},
			"negative buffers": {publisher: good, config: kafka.Config{MaxBufferedRecords: -1, MaxBufferedBytes: -1},
				want: []string{"Config.MaxBufferedRecords", "Config.MaxBufferedBytes"}},
			"credentials alone": {publisher: good, config: kafka.Config{SASL: kafka.SASL{Username: "u"}},
				want: []string{"Config.SASL.Mechanism"}},
			"an unknown mechanism": {publisher: good, config: kafka.Config{SASL: kafka.SASL{Mechanism: "NTLM"}},
				want: []string{"Config.SASL.Mechanism", "NTLM"}},
			"no password": {publisher: good, config: kafka.Config{SASL: kafka.SASL{Mechanism: kafka.SASLPlain, Username: "u"}},
				want: []string{"Config.SASL.Username", "Password"}},
			"a token for PLAIN": {publisher: good,
				config: kafka.Config{SASL: kafka.SASL{Mechanism: kafka.SASLPlain, Username: "u", Password: "p", Token: token}},
				want:   []string{"Config.SASL.Token"}},
			"no token": {publisher: good, config: kafka.Config{SASL: kafka.SASL{Mechanism: kafka.SASLOAuthBearer}},
				want: []string{"Config.SASL.Token"}},
			"a user for a token": {publisher: good,
				config: kafka.Config{SASL: kafka.SASL{Mechanism: kafka.SASLOAuthBearer, Token: token, Username: "u"}},
				want:   []string{"Config.SASL.Username"}},
			"two mistakes": {publisher: wkafka.PublisherConfig{}, config: kafka.Config{Compression: "rar"},
				want: []string{"PublisherConfig.Brokers", "Config.Compression"}},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				pub, err := kafka.NewPublisher(c.publisher, c.config, nil)
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
		logger := watermill.NewCaptureLogger()
		brokers := kafkatest.Fake(t).Addrs
		pub, err := kafka.NewPublisher(wkafka.PublisherConfig{Brokers: brokers}, kafka.Config{}, logger)
		require.NoError(t, err)
		require.NoError(t, pub.Publish(kafkatest.Topic(t), newMessage("the payload")))
		require.NoError(t, pub.Close())
		var log logText
		logger.PrintCaptured(&log)
		require.Contains(t, log.String(), "kafka client: ")
		require.NotContains(t, log.String(), "the payload")
	})
}

type logText struct{ strings.Builder }

func (l *logText) Logf(format string, args ...any) { fmt.Fprintf(l, format+"\n", args...) }
