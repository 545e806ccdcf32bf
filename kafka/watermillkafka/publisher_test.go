package watermillkafka_test

import (
	"errors"
	"testing"
	"time"

	"github.com/IBM/sarama"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/kafkatest"
	"github.com/outmill/outmill/kafka"
	"github.com/outmill/outmill/kafka/watermillkafka"
)

func TestMain(m *testing.M) {
	testenv.ManyAtATime()
	// sarama's metrics library runs one goroutine that never ends.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

func TestPublisher(t *testing.T) {
	t.Parallel()

	t.Run("a message arrives as watermill kafkas own marshaler makes it", func(t *testing.T) {
		t.Parallel()
		byCustomer := wkafka.NewWithPartitioningMarshaler(func(_ string, msg *message.Message) (string, error) {
			return msg.Metadata.Get("customer"), nil
		})
		for name, c := range map[string]struct {
			marshaler wkafka.Marshaler
			want      string
		}{
			"none":         {want: "outbox"},
			"the default":  {marshaler: wkafka.DefaultMarshaler{}, want: "outbox"},
			"partitioning": {marshaler: byCustomer, want: "c-7"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				brokers, topic := kafkatest.Fake(t).Addrs, kafkatest.Topic(t)
				pub, err := watermillkafka.NewPublisher(wkafka.PublisherConfig{Brokers: brokers, Marshaler: c.marshaler}, nil)
				require.NoError(t, err)
				defer func() { require.NoError(t, pub.Close()) }()
				msg := message.NewMessage("m-1", []byte(`{"total":1999}`))
				msg.Metadata.Set("customer", "c-7")
				outmill.SetKey(msg, "outbox")
				require.NoError(t, pub.Publish(topic, msg))

				record := kafkatest.ReadAll(t, brokers, topic)[0]
				require.Equal(t, c.want, string(record.Key))
				headers := make([]*sarama.RecordHeader, len(record.Headers))
				for i, h := range record.Headers {
					headers[i] = &sarama.RecordHeader{Key: []byte(h.Key), Value: h.Value}
				}
				got, err := wkafka.DefaultMarshaler{}.Unmarshal(&sarama.ConsumerMessage{Headers: headers, Value: record.Value})
				require.NoError(t, err)
				require.True(t, msg.Equals(got), "%v", got)
			})
		}
	})

	t.Run("a setting that this publisher cannot use is refused by its name", func(t *testing.T) {
		t.Parallel()
		good := []string{"127.0.0.1:1"}
		for name, c := range map[string]struct {
			config wkafka.PublisherConfig
			want   []string
		}{
			"no brokers":      {want: []string{"PublisherConfig.Brokers"}},
			"an empty broker": {config: wkafka.PublisherConfig{Brokers: []string{"a:1", " "}}, want: []string{"PublisherConfig.Brokers"}},
			"a nil marshaler": {config: wkafka.PublisherConfig{Brokers: good, Marshaler: (*pointerMarshaler)(nil)},
				want: []string{"PublisherConfig.Marshaler"}},
			"sarama's settings": {config: wkafka.PublisherConfig{Brokers: good, OverwriteSaramaConfig: sarama.NewConfig()},
				want: []string{"OverwriteSaramaConfig", "watermillkafka.ConfigOf"}},
			"OpenTelemetry": {config: wkafka.PublisherConfig{Brokers: good, OTELEnabled: true}, want: []string{"OTELEnabled", "outmill.SetTrace"}},
			"a tracer": {config: wkafka.PublisherConfig{Brokers: good, Tracer: wkafka.NewOTELSaramaTracer()},
				want: []string{"Tracer", "outmill.SetTrace"}},
			"two mistakes": {config: wkafka.PublisherConfig{OTELEnabled: true}, want: []string{"PublisherConfig.Brokers", "OTELEnabled"}},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				pub, err := watermillkafka.NewPublisher(c.config, nil)
				require.ErrorIs(t, err, outmill.ErrInvalidConfig)
				require.Nil(t, pub)
				for _, want := range c.want {
					require.ErrorContains(t, err, want)
				}
			})
		}
	})

	t.Run("an address that is none is refused", func(t *testing.T) {
		t.Parallel()
		_, err := watermillkafka.NewPublisher(wkafka.PublisherConfig{Brokers: []string{"a:port"}}, nil)
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		require.ErrorContains(t, err, "a:port")
	})
}

func TestMarshaler(t *testing.T) {
	t.Parallel()

	t.Run("all that sarama would send is in the record", func(t *testing.T) {
		t.Parallel()
		when := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
		record, err := marshalerOf(t, func(string, *message.Message) (*sarama.ProducerMessage, error) {
			return &sarama.ProducerMessage{
				Topic: "other", Timestamp: when, Key: sarama.StringEncoder("k"), Value: sarama.ByteEncoder("v"), Partition: 7,
				Headers: []sarama.RecordHeader{{Key: []byte("h"), Value: []byte("1")}, {Key: []byte("h"), Value: nil}},
			}, nil
		}).Marshal("topic", message.NewMessage("1", nil))
		require.NoError(t, err)
		require.Equal(t, &kgo.Record{
			Topic: "other", Timestamp: when, Key: []byte("k"), Value: []byte("v"),
			Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("1")}, {Key: "h"}},
		}, record)
	})

	t.Run("a key that sarama would hash stays a key when it is empty", func(t *testing.T) {
		t.Parallel()
		record, err := marshalerOf(t, func(string, *message.Message) (*sarama.ProducerMessage, error) {
			return &sarama.ProducerMessage{Key: sarama.ByteEncoder(nil)}, nil
		}).Marshal("topic", message.NewMessage("1", nil))
		require.NoError(t, err)
		require.NotNil(t, record.Key)
		require.Empty(t, record.Key)
		require.Nil(t, record.Value)
	})

	t.Run("what cannot be encoded is an error that names it", func(t *testing.T) {
		t.Parallel()
		for want, made := range map[string]func() (*sarama.ProducerMessage, error){
			"cannot":                       func() (*sarama.ProducerMessage, error) { return nil, errors.New("cannot") },
			"neither":                      func() (*sarama.ProducerMessage, error) { return nil, nil }, //nolint:nilnil // the case under test
			"encode the message's key":     func() (*sarama.ProducerMessage, error) { return &sarama.ProducerMessage{Key: badEncoder{}}, nil },
			"encode the message's value: ": func() (*sarama.ProducerMessage, error) { return &sarama.ProducerMessage{Value: badEncoder{}}, nil },
		} {
			_, err := marshalerOf(t, func(string, *message.Message) (*sarama.ProducerMessage, error) { return made() }).
				Marshal("topic", message.NewMessage("1", nil))
			require.ErrorContains(t, err, want)
		}
	})
}

// marshalerOf returns package kafka's marshaler for one of watermill-kafka.
func marshalerOf(t *testing.T, marshal marshalerFunc) kafka.Marshaler {
	t.Helper()
	config, err := watermillkafka.ConfigOf(wkafka.PublisherConfig{Brokers: []string{"a:1"}, Marshaler: marshal})
	require.NoError(t, err)
	return config.Marshaler
}

type marshalerFunc func(topic string, msg *message.Message) (*sarama.ProducerMessage, error)

func (f marshalerFunc) Marshal(topic string, msg *message.Message) (*sarama.ProducerMessage, error) {
	return f(topic, msg)
}

type pointerMarshaler struct{ wkafka.DefaultMarshaler }

type badEncoder struct{}

func (badEncoder) Encode() ([]byte, error) { return nil, errors.New("cannot") }
func (badEncoder) Length() int             { return 0 }
