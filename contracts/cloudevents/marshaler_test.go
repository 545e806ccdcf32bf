package cloudevents_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cloudevents/sdk-go/protocol/kafka_sarama/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/apipb"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/contracts"
	"github.com/outmill/outmill/contracts/cloudevents"
	"github.com/outmill/outmill/contracts/protobuf"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/internal/testenv/kafkatest"
	"github.com/outmill/outmill/kafka"
	"github.com/outmill/outmill/outmilltest"
	"github.com/outmill/outmill/publisher"
)

func TestMain(m *testing.M) {
	// sarama's metrics library has one goroutine that never ends.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

type orderPlacedV1 struct {
	ID string `json:"id"`
}

type orderPlaced struct {
	ID    string    `json:"id"`
	Cents int       `json:"cents"`
	At    time.Time `json:"-"`
}

func (o orderPlaced) Validate() error {
	if o.Cents < 0 {
		return errors.New("cents are negative")
	}
	return nil
}

func (o orderPlaced) OccurredAt() time.Time { return o.At }

const (
	placed = "com.example.order-placed"
	mixin  = "com.example.mixin"
	source = "https://shop.example.com/orders"
)

var (
	at  = time.Date(2026, 3, 4, 5, 6, 7, 8, time.UTC)
	now = time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
)

func newMarshaler(t *testing.T, changes ...func(*cloudevents.Config)) *cloudevents.Marshaler {
	t.Helper()
	registry, err := contracts.NewRegistry(
		contracts.Of[orderPlaced](placed, 2, contracts.UpcastFrom(1, func(old orderPlacedV1) (orderPlaced, error) {
			return orderPlaced{ID: old.ID, Cents: 100}, nil
		})),
		protobuf.Of[apipb.Mixin](mixin, 1),
	)
	require.NoError(t, err)
	cfg := cloudevents.Config{Source: source, Now: func() time.Time { return now }}
	for _, change := range changes {
		change(&cfg)
	}
	marshaler, err := cloudevents.New(registry, cfg)
	require.NoError(t, err)
	return marshaler
}

// decode has the SDK of CloudEvents make an event of a record on Kafka.
func decode(t *testing.T, rec *kgo.Record) *event.Event {
	t.Helper()
	consumed := &sarama.ConsumerMessage{Topic: rec.Topic, Key: rec.Key, Value: rec.Value, Partition: rec.Partition, Offset: rec.Offset}
	for _, header := range rec.Headers {
		consumed.Headers = append(consumed.Headers, &sarama.RecordHeader{Key: []byte(header.Key), Value: header.Value})
	}
	msg := kafka_sarama.NewMessageFromConsumerMessage(consumed)
	require.Equal(t, binding.EncodingBinary, msg.ReadEncoding())
	decoded, err := binding.ToEvent(t.Context(), msg)
	require.NoError(t, err)
	require.NoError(t, decoded.Validate())
	return decoded
}

func newBus(t *testing.T, pub message.Publisher, marshaler *cloudevents.Marshaler) *cqrs.EventBus {
	t.Helper()
	bus, err := cqrs.NewEventBusWithConfig(pub, cqrs.EventBusConfig{
		GeneratePublishTopic: func(p cqrs.GenerateEventPublishTopicParams) (string, error) { return p.EventName, nil },
		OnPublish: func(p cqrs.OnEventSendParams) error {
			outmill.SetKey(p.Message, "customer-7")
			return nil
		},
		Marshaler: marshaler,
	})
	require.NoError(t, err)
	return bus
}

func newKafka(t *testing.T, brokers []string) *kafka.Publisher {
	t.Helper()
	pub, err := kafka.NewPublisher(kafka.Config{Brokers: brokers}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pub.Close()) })
	return pub
}

func TestMarshaler(t *testing.T) {
	t.Parallel()

	t.Run("writes what the SDK reads, from a transaction through the outbox to Kafka", func(t *testing.T) {
		t.Parallel()
		broker := kafkatest.Fake(t)
		store := outmilltest.NewStore(t)
		pub, err := publisher.New(store, publisher.Config{}, nil)
		require.NoError(t, err)
		fwd, err := forwarder.New(store, newKafka(t, broker.Addrs), forwarder.Config{}, nil)
		require.NoError(t, err)
		bus := newBus(t, pub, newMarshaler(t, func(c *cloudevents.Config) {
			c.NewID = func() string { return "id-1" }
			c.Attributes = func(any) map[string]string {
				return map[string]string{"subject": "order ä", "region": "eu1", "dataschema": "https://example.com/schema", "none": ""}
			}
		}))
		require.NoError(t, store.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
			return errors.Join(bus.Publish(ctx, orderPlaced{ID: "7", Cents: 1999, At: at}), bus.Publish(ctx, &apipb.Mixin{Name: "a"}))
		}))
		forwarded, err := fwd.Once(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, forwarded)

		records := kafkatest.ReadAll(t, broker.Addrs, placed)
		require.Len(t, records, 1)
		require.Equal(t, "customer-7", string(records[0].Key))
		got := decode(t, records[0])
		require.Equal(t, "1.0", got.SpecVersion())
		require.Equal(t, "id-1", got.ID())
		require.Equal(t, source, got.Source())
		require.Equal(t, placed, got.Type())
		require.Equal(t, at, got.Time())
		require.Equal(t, "order ä", got.Subject())
		require.Equal(t, "https://example.com/schema", got.DataSchema())
		require.Equal(t, "application/json", got.DataContentType())
		require.Equal(t, "2", got.Extensions()["contractversion"])
		require.Equal(t, "eu1", got.Extensions()["region"])
		require.NotContains(t, got.Extensions(), "none")
		var data orderPlaced
		require.NoError(t, got.DataAs(&data))
		require.Equal(t, orderPlaced{ID: "7", Cents: 1999}, data)

		records = kafkatest.ReadAll(t, broker.Addrs, mixin)
		require.Len(t, records, 1)
		got = decode(t, records[0])
		require.Equal(t, "application/protobuf", got.DataContentType())
		require.Equal(t, now, got.Time())
		var decoded apipb.Mixin
		require.NoError(t, proto.Unmarshal(got.Data(), &decoded))
		require.Equal(t, "a", decoded.GetName())
	})

	t.Run("reads what the SDK writes, by way of Kafka", func(t *testing.T) {
		t.Parallel()
		broker := kafkatest.Fake(t)
		sent := event.New()
		sent.SetID("id-1")
		sent.SetSource("/others")
		sent.SetType(placed)
		require.NoError(t, sent.SetData("application/json", orderPlacedV1{ID: "7"}))
		for _, version := range []any{"1", nil} {
			sent.SetExtension("contractversion", version)
			produced := &sarama.ProducerMessage{Topic: placed}
			require.NoError(t, kafka_sarama.WriteProducerMessage(t.Context(), binding.ToMessage(&sent), produced))
			send(t, broker.Addrs, produced)
		}
		marshaler := newMarshaler(t, func(c *cloudevents.Config) { c.DefaultVersion = 1 })
		records := kafkatest.ReadAll(t, broker.Addrs, placed)
		require.Len(t, records, 2)
		for _, rec := range records {
			msg := received(t, rec)
			require.Equal(t, placed, marshaler.NameFromMessage(msg))
			var got orderPlaced
			require.NoError(t, marshaler.Unmarshal(msg, &got))
			require.Equal(t, orderPlaced{ID: "7", Cents: 100}, got)
		}
		require.ErrorIs(t, newMarshaler(t).Unmarshal(received(t, records[1]), &orderPlaced{}), contracts.ErrUnknownContract, "it has no version")
	})

	t.Run("reads what it has written", func(t *testing.T) {
		t.Parallel()
		marshaler := newMarshaler(t)
		msg, err := marshaler.Marshal(&orderPlaced{ID: "7", Cents: 1})
		require.NoError(t, err)
		require.Equal(t, msg.UUID, msg.Metadata[cloudevents.MetadataID])
		require.Equal(t, placed, marshaler.NameFromMessage(msg))
		require.Equal(t, placed, marshaler.Name(orderPlaced{}))
		passed, err := marshaler.RefuseUnknown(message.PassthroughHandler)(msg)
		require.NoError(t, err)
		require.Len(t, passed, 1)
		var got orderPlaced
		require.NoError(t, marshaler.Unmarshal(msg, &got))
		require.Equal(t, orderPlaced{ID: "7", Cents: 1}, got)
	})

	t.Run("refuses what it cannot read for good", func(t *testing.T) {
		t.Parallel()
		marshaler := newMarshaler(t)
		for _, c := range []struct{ name, value, want string }{
			{cloudevents.MetadataSpecVersion, "0.3", `"ce_specversion" is "0.3"`},
			{cloudevents.MetadataSpecVersion, "", `"ce_specversion" is ""`},
			{cloudevents.MetadataType, "", `no metadata "ce_type"`},
			{cloudevents.MetadataType, "lost", `"lost" is not registered`},
			{cloudevents.MetadataVersion, "3", "has no version 3"},
			{cloudevents.MetadataVersion, "x", `"ce_contractversion" is "x"`},
			{cloudevents.MetadataContentType, "Application/CloudEvents+json; charset=UTF-8", "structured mode"},
		} {
			msg, err := marshaler.Marshal(orderPlaced{})
			require.NoError(t, err)
			msg.Metadata[c.name] = c.value
			err = marshaler.Unmarshal(msg, &orderPlaced{})
			require.ErrorIs(t, err, contracts.ErrUnknownContract)
			require.ErrorContains(t, err, c.want)
			require.True(t, outmill.IsPermanent(err))
			_, err = marshaler.RefuseUnknown(message.PassthroughHandler)(msg)
			require.ErrorContains(t, err, c.want)
		}
	})

	t.Run("refuses to write an invalid CloudEvent", func(t *testing.T) {
		t.Parallel()
		with := func(name, value string) func(*cloudevents.Config) {
			return func(c *cloudevents.Config) {
				c.Attributes = func(any) map[string]string { return map[string]string{name: value} }
			}
		}
		for want, change := range map[string]func(*cloudevents.Config){
			`attribute "Subject" has a name`:            with("Subject", "x"),
			`attribute "" has a name`:                   with("", "x"),
			`attribute "aaaaaaaaaaaaaaaaaaaaa" has`:     with(strings.Repeat("a", 21), "x"),
			`"contractversion" is set by the marshaler`: with("contractversion", "x"),
			`"id" is set by the marshaler`:              with("id", "x"),
			`"subject" is not valid UTF-8`:              with("subject", "\xff"),
			`"subject" has a control character`:         with("subject", "a\nb"),
			"NewID returned an empty id":                func(c *cloudevents.Config) { c.NewID = func() string { return "" } },
			"the time of the event: ":                   func(c *cloudevents.Config) { c.Now = func() time.Time { return time.Unix(1<<40, 0) } },
		} {
			_, err := newMarshaler(t, change).Marshal(orderPlaced{})
			require.ErrorIs(t, err, contracts.ErrInvalidMessage, want)
			require.ErrorContains(t, err, want)
		}
		_, err := newMarshaler(t).Marshal(orderPlaced{Cents: -1})
		require.ErrorIs(t, err, contracts.ErrInvalidMessage)
		_, err = newMarshaler(t).Marshal(orderPlacedV1{})
		require.ErrorIs(t, err, contracts.ErrUnknownContract)
	})
}

func TestNew(t *testing.T) {
	t.Parallel()
	t.Run("refuses settings that make no sense, by their names", func(t *testing.T) {
		t.Parallel()
		registry, err := contracts.NewRegistry()
		require.NoError(t, err)
		for _, bad := range []string{"", "a b", "http://[", "a\x00", "\xff"} {
			_, err := cloudevents.New(registry, cloudevents.Config{Source: bad, DefaultVersion: -1})
			require.ErrorIs(t, err, outmill.ErrInvalidConfig)
			require.ErrorContains(t, err, "cloudevents.Config.Source is")
			require.ErrorContains(t, err, "cloudevents.Config.DefaultVersion is -1")
		}
		_, err = cloudevents.New(nil, cloudevents.Config{Source: source})
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
	})
	t.Run("takes references as sources", func(t *testing.T) {
		t.Parallel()
		registry, err := contracts.NewRegistry()
		require.NoError(t, err)
		for _, good := range []string{"/orders", "urn:uuid:6e8bc430-9c3a-11d9-9669-0800200c9a66", source} {
			_, err := cloudevents.New(registry, cloudevents.Config{Source: good})
			require.NoError(t, err)
		}
	})
}

// send produces with sarama, as the SDK does.
func send(t *testing.T, brokers []string, msg *sarama.ProducerMessage) {
	t.Helper()
	cfg := sarama.NewConfig()
	cfg.Producer.Return.Successes = true
	producer, err := sarama.NewSyncProducer(brokers, cfg)
	require.NoError(t, err)
	_, _, err = producer.SendMessage(msg)
	require.NoError(t, errors.Join(err, producer.Close()))
}

// received is the message that watermill-kafka makes of a record.
func received(t *testing.T, rec *kgo.Record) *message.Message {
	t.Helper()
	consumed := &sarama.ConsumerMessage{Topic: rec.Topic, Key: rec.Key, Value: rec.Value}
	for _, header := range rec.Headers {
		consumed.Headers = append(consumed.Headers, &sarama.RecordHeader{Key: []byte(header.Key), Value: header.Value})
	}
	msg, err := wkafka.DefaultMarshaler{}.Unmarshal(consumed)
	require.NoError(t, err)
	return msg
}
