package kafka_test

import (
	"bytes"
	"cmp"
	"slices"
	"testing"

	"github.com/IBM/sarama"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/kafka"
	"github.com/outmill/outmill/kafka/watermillkafka"
)

func TestRecord(t *testing.T) {
	t.Parallel()

	t.Run("the default marshaler makes the record that watermill kafkas makes", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			msg := message.NewMessage(rapid.String().Draw(t, "uuid"), rapid.SliceOf(rapid.Byte()).Draw(t, "payload"))
			if rapid.Bool().Draw(t, "no payload") {
				msg.Payload = nil
			}
			name := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{wkafka.UUIDHeaderKey, outmill.MetadataKey}))
			msg.Metadata = rapid.MapOf(name, rapid.String()).Draw(t, "metadata")
			topic := rapid.SampledFrom([]string{"orders", "", "no topic"}).Draw(t, "topic")
			theirs, err := watermillkafka.ConfigOf(wkafka.PublisherConfig{Brokers: []string{"a:1"},
				Marshaler: marshalers(wkafka.DefaultMarshaler{}.Marshal)})
			require.NoError(t, err)
			want, wanted := kafka.RecordOf(theirs.Marshaler, topic, msg)
			got, err := kafka.RecordOf(kafka.DefaultMarshaler{}, topic, msg)
			require.Equal(t, wanted == nil, err == nil)
			if wanted != nil {
				return
			}
			for _, r := range []*kgo.Record{want, got} {
				slices.SortFunc(r.Headers, func(a, b kgo.RecordHeader) int {
					return cmp.Or(cmp.Compare(a.Key, b.Key), bytes.Compare(a.Value, b.Value))
				})
			}
			require.Equal(t, want, got)
		})
	})
}

// marshalers hides which marshaler of watermill-kafka it is.
type marshalers func(topic string, msg *message.Message) (*sarama.ProducerMessage, error)

func (f marshalers) Marshal(topic string, msg *message.Message) (*sarama.ProducerMessage, error) {
	return f(topic, msg)
}
