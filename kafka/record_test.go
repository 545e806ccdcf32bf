package kafka_test

import (
	"bytes"
	"cmp"
	"slices"
	"testing"

	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/kafka"
)

func TestRecord(t *testing.T) {
	t.Parallel()

	t.Run("a record made without the default marshaler is the one that it makes", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			msg := message.NewMessage(rapid.String().Draw(t, "uuid"), rapid.SliceOf(rapid.Byte()).Draw(t, "payload"))
			if rapid.Bool().Draw(t, "no payload") {
				msg.Payload = nil
			}
			name := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{wkafka.UUIDHeaderKey, outmill.MetadataKey}))
			msg.Metadata = rapid.MapOf(name, rapid.String()).Draw(t, "metadata")
			topic := rapid.SampledFrom([]string{"orders", "", "no topic"}).Draw(t, "topic")
			want, wanted := kafka.RecordOf(marshalerFunc(wkafka.DefaultMarshaler{}.Marshal), topic, msg)
			got, err := kafka.RecordOf(wkafka.DefaultMarshaler{}, topic, msg)
			require.Equal(t, wanted == nil, err == nil)
			if wanted != nil {
				require.Equal(t, wanted.Error(), err.Error())
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
