package kafka_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/kafkatest"
	"github.com/outmill/outmill/kafka"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

func drawRaw(t *rapid.T, topics ...string) roles.RawRecord {
	text := rapid.OneOf(rapid.Just(""), rapid.String())
	name := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
		kafka.UUIDHeaderKey, outmill.MetadataKey, outmill.MetadataCorrelationID, outmill.MetadataCausationID, outmill.MetadataTenantID,
		outmill.MetadataTraceParent, outmill.MetadataTraceState, outmill.MetadataContract, outmill.MetadataOccurredAt, "outmill_due_at",
		"outmill-escaped-" + kafka.UUIDHeaderKey, "outmill-escaped-x", "plain",
	}))
	metadata := rapid.MapOf(name, text).Draw(t, "metadata")
	payload := rapid.SampledFrom([][]byte{nil, {}, []byte("payload")}).Draw(t, "payload")
	r := roles.RawRecord{Record: &outmill.Record{
		MessageID: text.Draw(t, "message id"), Topic: rapid.SampledFrom(topics).Draw(t, "topic"), Key: text.Draw(t, "key"), Payload: payload,
		CorrelationID: text.Draw(t, "correlation"), CausationID: text.Draw(t, "causation"), TenantID: text.Draw(t, "tenant"),
		TraceParent: text.Draw(t, "traceparent"), TraceState: text.Draw(t, "tracestate"),
	}}
	if rapid.IntRange(0, 4).Draw(t, "form") == 0 {
		r.Metadata = metadata
		return r
	}
	for name, value := range metadata {
		r.Entries = append(r.Entries, roles.MetadataEntry{Name: name, Value: value})
	}
	return r
}

func sortHeaders(records ...*kgo.Record) {
	for _, r := range records {
		slices.SortFunc(r.Headers, func(a, b kgo.RecordHeader) int {
			return cmp.Or(cmp.Compare(a.Key, b.Key), bytes.Compare(a.Value, b.Value))
		})
	}
}

func TestRaw(t *testing.T) {
	t.Parallel()

	t.Run("the record of a raw record is that of its message", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			var list []roles.RawRecord
			for range rapid.IntRange(1, 5).Draw(t, "records") {
				list = append(list, drawRaw(t, "orders", "", "no topic"))
			}
			before := fmt.Sprintf("%+v", list)
			want, got, wantErrs, gotErrs := kafka.BothWays(list)
			require.Equal(t, before, fmt.Sprintf("%+v", list), "the records stay as they are")
			for i := range list {
				require.Equal(t, fmt.Sprint(wantErrs[i]), fmt.Sprint(gotErrs[i]))
				if wantErrs[i] == nil {
					sortHeaders(want[i], got[i])
					require.Equal(t, want[i], got[i])
				}
			}
		})
	})

	t.Run("Kafka has the same records both ways", func(t *testing.T) {
		t.Parallel()
		kafkatest.Each(t, func(t *testing.T, brokers []string) {
			pub := newPublisher(t, brokers, kafka.Config{})
			publishRaw := pub.PublishesRaw(pub)
			topics := []string{kafkatest.CreateTopic(t, brokers, 3), kafkatest.CreateTopic(t, brokers, 3)}
			var list []roles.RawRecord
			example := rapid.Custom(func(t *rapid.T) roles.RawRecord { return drawRaw(t, topics[0]) })
			for i := range 100 {
				r := example.Example(i)
				r.MessageID = fmt.Sprint("message ", i)
				list = append(list, r)
			}
			require.NoError(t, publishRaw(t.Context(), list))
			batch := make([]storekit.Outgoing, len(list))
			for i, r := range list {
				batch[i] = storekit.Outgoing{Topic: topics[1], Message: storekit.RawMessage(r)}
			}
			require.NoError(t, pub.PublishBatch(t.Context(), batch))
			raw, usual := byMessageID(kafkatest.ReadAll(t, brokers, topics[0])), byMessageID(kafkatest.ReadAll(t, brokers, topics[1]))
			require.Len(t, raw, len(list))
			require.Len(t, usual, len(list))
			for id, want := range usual {
				got := raw[id]
				require.Equal(t, want.Key, got.Key, id)
				require.Equal(t, want.Value, got.Value, id)
				require.Equal(t, want.Headers, got.Headers, id)
				require.False(t, got.Timestamp.IsZero(), id)
				if want.Key != nil {
					require.Equal(t, want.Partition, got.Partition, id)
				}
			}
		})
	})

	t.Run("a failed record is named by its index, and fails alone", func(t *testing.T) {
		t.Parallel()
		brokers := kafkatest.Fake(t).Addrs
		topic := kafkatest.CreateTopic(t, brokers, 1)
		pub := newPublisher(t, brokers, kafka.Config{MaxMessageBytes: 2048})
		list := []roles.RawRecord{
			{Record: &outmill.Record{MessageID: "first", Topic: topic}},
			{Record: &outmill.Record{MessageID: "no name", Topic: "no topic"}},
			{Record: &outmill.Record{MessageID: "large", Topic: topic, Payload: []byte(strings.Repeat("x", 10_000))}},
			{Record: &outmill.Record{MessageID: "last", Topic: topic}},
		}
		var partly *storekit.PublishError
		require.ErrorAs(t, pub.PublishesRaw(pub)(t.Context(), list), &partly)
		require.Equal(t, 4, partly.Total)
		require.Len(t, partly.Failed, 2)
		for i, f := range partly.Failed {
			require.Equal(t, i+1, f.Index)
			require.Equal(t, list[i+1].MessageID, f.MessageID)
			require.Equal(t, list[i+1].Topic, f.Topic)
			require.True(t, outmill.IsPermanent(f.Err), f.Err)
		}
		require.Len(t, kafkatest.ReadAll(t, brokers, topic), 2)
	})

	t.Run("only a publisher itself with the default marshaler publishes raw records", func(t *testing.T) {
		t.Parallel()
		brokers := []string{"localhost:1"}
		pub := newPublisher(t, brokers, kafka.Config{})
		require.NotNil(t, pub.PublishesRaw(pub))
		type embedding struct{ *kafka.Publisher }
		require.Nil(t, embedding{pub}.PublishesRaw(embedding{pub}))
		require.Nil(t, pub.PublishesRaw(newPublisher(t, brokers, kafka.Config{})))
		require.Nil(t, pub.PublishesRaw(nil))
		own := newPublisher(t, brokers, kafka.Config{Marshaler: ownMarshaler{}})
		require.Nil(t, own.PublishesRaw(own))
	})

	t.Run("a closed publisher refuses raw records", func(t *testing.T) {
		t.Parallel()
		pub := newPublisher(t, []string{"localhost:1"}, kafka.Config{})
		publish := pub.PublishesRaw(pub)
		require.NoError(t, pub.Close())
		require.ErrorIs(t, publish(context.Background(), nil), outmill.ErrClosed)
	})
}

func byMessageID(records []*kgo.Record) map[string]*kgo.Record {
	sortHeaders(records...)
	found := map[string]*kgo.Record{}
	for _, r := range records {
		for _, h := range r.Headers {
			if h.Key == kafka.UUIDHeaderKey {
				found[string(h.Value)] = r
			}
		}
	}
	return found
}
