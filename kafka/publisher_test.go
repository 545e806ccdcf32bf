package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/IBM/sarama"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/kafkatest"
	"github.com/outmill/outmill/kafka"
	"github.com/outmill/outmill/storekit"
)

func TestPublisher(t *testing.T) {
	t.Parallel()

	t.Run("a watermill kafka subscriber reads the published messages", func(t *testing.T) {
		t.Parallel()
		for _, codec := range []kafka.Compression{kafka.CompressionNone, kafka.CompressionGzip, kafka.CompressionSnappy, kafka.CompressionLZ4,
			kafka.CompressionZstd} {
			t.Run("compression "+string(codec), func(t *testing.T) {
				t.Parallel()
				kafkatest.Each(t, func(t *testing.T, brokers []string) {
					topic := kafkatest.CreateTopic(t, brokers, 3)
					pub := newPublisher(t, brokers, kafka.Config{Compression: codec})
					sent := map[string]*message.Message{}
					var batch []*message.Message
					for i := range 20 {
						msg := keyedMessage(fmt.Sprintf("key %d", i%4), fmt.Sprintf(`{"n":%d}`, i))
						msg.Metadata.Set("umlaut", "ä\x00ö")
						msg.Metadata.Set("empty", "")
						batch, sent[msg.UUID] = append(batch, msg), msg
					}
					for name, payload := range map[string]message.Payload{"no payload": nil, "empty payload": {}} {
						msg := message.NewMessage(name, payload)
						batch, sent[name] = append(batch, msg), msg
					}
					require.NoError(t, pub.Publish(topic, batch...))

					for _, got := range subscribe(t, brokers, topic, len(batch)) {
						want := sent[got.UUID]
						require.NotNil(t, want, "unknown message %s", got.UUID)
						delete(sent, got.UUID)
						require.Equal(t, want.Payload, got.Payload, "the payload: nil is a tombstone, and an empty one is not")
						require.Equal(t, want.Metadata, got.Metadata)
					}
					require.Empty(t, sent)
				})
			})
		}
	})

	t.Run("the record is the one that the marshaler made", func(t *testing.T) {
		t.Parallel()
		kafkatest.Each(t, func(t *testing.T, brokers []string) {
			topic, other := kafkatest.CreateTopic(t, brokers, 1), kafkatest.CreateTopic(t, brokers, 1)
			// Older than any delivery timeout.
			when := time.Date(2020, 1, 2, 3, 4, 5, int(6*time.Millisecond), time.UTC)
			withKey := func(key []byte) marshalerFunc {
				return func(string, *message.Message) (*kgo.Record, error) { return &kgo.Record{Key: key}, nil }
			}
			for name, c := range map[string]struct {
				marshaler kafka.Marshaler
				topic     string
				want      string
			}{
				"the default": {topic: topic, want: "outbox"},
				"the outbox key, where the marshaler sets none": {marshaler: withKey(nil), topic: topic, want: "outbox"},
				"the marshaler's key":                           {marshaler: withKey([]byte("theirs")), topic: topic, want: "theirs"},
				"an empty key":                                  {marshaler: withKey([]byte{}), topic: topic, want: ""},
				"the marshaler's topic, time, headers and key": {
					marshaler: marshalerFunc(func(string, *message.Message) (*kgo.Record, error) {
						return &kgo.Record{
							Topic: other, Timestamp: when, Key: []byte{}, Partition: 7,
							Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("1")}, {Key: "h"}},
						}, nil
					}),
					topic: other, want: "",
				},
			} {
				pub := newPublisher(t, brokers, kafka.Config{Marshaler: c.marshaler})
				require.NoError(t, pub.Publish(topic, keyedMessage("outbox", "x")), name)
				records := kafkatest.ReadAll(t, brokers, c.topic)
				last := records[len(records)-1]
				require.Equal(t, c.want, string(last.Key), name)
				require.NotNil(t, last.Key, name)
				if c.topic == other {
					require.Equal(t, when, last.Timestamp.UTC(), name)
					require.Nil(t, last.Value, name)
					require.Equal(t, []kgo.RecordHeader{{Key: "h", Value: []byte("1")}, {Key: "h"}}, last.Headers, name)
				}
			}
		})
	})

	t.Run("a call larger than the buffers arrives whole and in order", func(t *testing.T) {
		t.Parallel()
		for name, config := range map[string]kafka.Config{
			"by records": {MaxBufferedRecords: 7},
			"by bytes":   {MaxBufferedBytes: 500},
			"by one":     {MaxBufferedBytes: 1},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				kafkatest.Each(t, func(t *testing.T, brokers []string) {
					topic := kafkatest.CreateTopic(t, brokers, 1)
					batch := numbered(100)
					require.NoError(t, newPublisher(t, brokers, config).Publish(topic, batch...))
					require.Equal(t, payloadsOf(batch), payloads(kafkatest.ReadAll(t, brokers, topic)))
				})
			})
		}
	})

	t.Run("nothing is published by an empty call", func(t *testing.T) {
		t.Parallel()
		pub := newPublisher(t, []string{"127.0.0.1:1"}, kafka.Config{})
		require.NoError(t, pub.Publish("topic"))
		require.NoError(t, pub.PublishBatch(t.Context(), nil))
	})

	t.Run("a message that cannot be marshalled fails alone and for good", func(t *testing.T) {
		t.Parallel()
		refuse := marshalerFunc(func(_ string, msg *message.Message) (*kgo.Record, error) {
			switch string(msg.Payload) {
			case "error":
				return nil, errors.New("cannot")
			case "nothing":
				return nil, nil //nolint:nilnil // the case under test
			}
			return kafka.DefaultMarshaler{}.Marshal("", msg)
		})
		for name, c := range map[string]struct {
			marshaler kafka.Marshaler
			bad       *message.Message
			want      string
		}{
			"nil":               {bad: nil, want: "is nil"},
			"marshaler's error": {marshaler: refuse, bad: newMessage("error"), want: "cannot"},
			"marshaler's nil":   {marshaler: refuse, bad: newMessage("nothing"), want: "neither"},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				brokers := kafkatest.Fake(t).Addrs
				topic := kafkatest.Topic(t)
				pub := newPublisher(t, brokers, kafka.Config{Marshaler: c.marshaler})
				failed := failedAlone(t, pub.Publish(topic, newMessage("before"), c.bad, newMessage("after")))
				require.Equal(t, 1, failed.Index)
				require.Equal(t, topic, failed.Topic)
				require.True(t, outmill.IsPermanent(failed.Err))
				require.ErrorContains(t, failed.Err, c.want)
				if c.bad == nil {
					require.ErrorIs(t, failed.Err, outmill.ErrInvalidRecord)
				} else {
					require.Equal(t, c.bad.UUID, failed.MessageID)
				}
				require.Equal(t, []string{"before", "after"}, payloads(kafkatest.ReadAll(t, brokers, topic)))
			})
		}
	})

	t.Run("metadata named as the header of the UUID is sent under an escaped name", func(t *testing.T) {
		t.Parallel()
		for name, marshaler := range map[string]kafka.Marshaler{
			"by default":     nil,
			"by a marshaler": marshalerFunc(kafka.DefaultMarshaler{}.Marshal),
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				kafkatest.Each(t, func(t *testing.T, brokers []string) {
					topic := kafkatest.CreateTopic(t, brokers, 1)
					msg := newMessage("payload")
					msg.Metadata.Set(kafka.UUIDHeaderKey, "mine")
					require.NoError(t, newPublisher(t, brokers, kafka.Config{Marshaler: marshaler}).Publish(topic, msg))
					records := kafkatest.ReadAll(t, brokers, topic)
					require.Len(t, records, 1)
					require.ElementsMatch(t, []kgo.RecordHeader{
						{Key: kafka.UUIDHeaderKey, Value: []byte(msg.UUID)},
						{Key: "outmill-escaped-" + kafka.UUIDHeaderKey, Value: []byte("mine")},
					}, records[0].Headers)
				})
			})
		}
	})

	t.Run("a message that is too large fails alone and for good", func(t *testing.T) {
		t.Parallel()
		for name, c := range map[string]struct {
			config   kafka.Config
			settings []string
		}{
			"for the publisher": {config: kafka.Config{MaxMessageBytes: 2000}},
			"for the topic":     {settings: []string{"max.message.bytes=2000"}},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				kafkatest.Each(t, func(t *testing.T, brokers []string) {
					topic := kafkatest.CreateTopic(t, brokers, 1, c.settings...)
					neighbour := kafkatest.CreateTopic(t, brokers, 1)
					pub := newPublisher(t, brokers, c.config)
					batch := numbered(40)
					batch[13].Payload = make([]byte, 2500)
					batch[29].Payload = make([]byte, 5000)
					failed := failedMessages(t, pub.PublishBatch(t.Context(), append(outgoing(topic, batch...), outgoing(neighbour, newMessage("x"))...)))
					require.Len(t, failed, 2)
					for i, index := range []int{13, 29} {
						require.Equal(t, index, failed[i].Index)
						require.Equal(t, batch[index].UUID, failed[i].MessageID)
						require.True(t, outmill.IsPermanent(failed[i].Err))
						require.ErrorIs(t, failed[i].Err, kerr.MessageTooLarge)
						require.ErrorContains(t, failed[i].Err, "max.message.bytes")
					}
					want := append(append(payloadsOf(batch[:13]), payloadsOf(batch[14:29])...), payloadsOf(batch[30:])...)
					require.Equal(t, want, payloads(kafkatest.ReadAll(t, brokers, topic)))
					require.Len(t, kafkatest.ReadAll(t, brokers, neighbour), 1)
					require.NoError(t, pub.Publish(topic, newMessage("later")))
				})
			})
		}
	})

	t.Run("a message that the topic refuses fails alone and permanently", func(t *testing.T) {
		t.Parallel()
		brokers := kafkatest.Real(t)
		// A compacted topic requires a key.
		topic := kafkatest.CreateTopic(t, brokers, 1, "cleanup.policy=compact")
		pub := newPublisher(t, brokers, kafka.Config{})
		failed := failedAlone(t, pub.Publish(topic, keyedMessage("a", "1"), newMessage("2"), keyedMessage("b", "3")))
		require.Equal(t, 1, failed.Index)
		require.True(t, outmill.IsPermanent(failed.Err))
		require.ErrorIs(t, failed.Err, kerr.InvalidRecord)
		require.ErrorContains(t, failed.Err,
			"the message has no key, which a compacted topic (cleanup.policy=compact) requires: set one with outmill.SetKey")
		require.Equal(t, []string{"1", "3"}, payloads(kafkatest.ReadAll(t, brokers, topic)))
	})

	t.Run("a refused message is only said to lack a key if it has none", func(t *testing.T) {
		t.Parallel()
		broker := kafkatest.FakeWithoutAutoTopics(t, kfake.SeedTopics(1, "topic"))
		broker.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.InvalidRecord, Count: -1})
		pub := newPublisher(t, broker.Addrs, kafka.Config{})
		without := failedAlone(t, pub.Publish("topic", newMessage("x")))
		require.ErrorContains(t, without.Err, "has no key")
		with := failedAlone(t, pub.Publish("topic", keyedMessage("k", "x")))
		require.ErrorIs(t, with.Err, kerr.InvalidRecord)
		require.NotContains(t, with.Err.Error(), "has no key")
	})

	t.Run("batches above the limit of the topic are split", func(t *testing.T) {
		t.Parallel()
		kafkatest.Each(t, func(t *testing.T, brokers []string) {
			topic := kafkatest.CreateTopic(t, brokers, 1, "max.message.bytes=2000")
			batch := numbered(300)
			require.NoError(t, newPublisher(t, brokers, kafka.Config{}).Publish(topic, batch...))
			require.Equal(t, payloadsOf(batch), payloads(kafkatest.ReadAll(t, brokers, topic)))
		})
	})

	t.Run("close waits for calls and ends the publisher", func(t *testing.T) {
		t.Parallel()
		kafkatest.Each(t, func(t *testing.T, brokers []string) {
			topic := kafkatest.CreateTopic(t, brokers, 2)
			pub, err := kafka.NewPublisher(kafka.Config{Brokers: brokers}, nil)
			require.NoError(t, err)
			var mu sync.Mutex
			var delivered []string
			var callers sync.WaitGroup
			began := make(chan struct{}, 8)
			for range 8 {
				callers.Go(func() {
					for {
						msg := newMessage("")
						msg.Payload = []byte(msg.UUID)
						err := pub.Publish(topic, msg)
						if errors.Is(err, outmill.ErrClosed) {
							return
						}
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						delivered = append(delivered, msg.UUID)
						mu.Unlock()
						select {
						case began <- struct{}{}:
						default:
						}
					}
				})
			}
			for range 8 {
				<-began
			}
			var closers sync.WaitGroup
			for range 2 {
				closers.Go(func() {
					if err := pub.Close(); err != nil {
						t.Error(err)
					}
				})
			}
			closers.Wait()
			callers.Wait()
			require.ErrorIs(t, pub.Publish(topic, newMessage("late")), outmill.ErrClosed)
			require.ErrorIs(t, pub.Ping(t.Context()), outmill.ErrClosed)
			require.NoError(t, pub.Close())
			require.ElementsMatch(t, delivered, payloads(kafkatest.ReadAll(t, brokers, topic)))
		})
	})

	t.Run("many callers share a publisher", func(t *testing.T) {
		t.Parallel()
		kafkatest.Each(t, func(t *testing.T, brokers []string) {
			topics := []string{kafkatest.CreateTopic(t, brokers, 3), kafkatest.CreateTopic(t, brokers, 1)}
			pub := newPublisher(t, brokers, kafka.Config{MaxBufferedRecords: 50})
			const callers, calls, size = 8, 10, 20
			var wg sync.WaitGroup
			for caller := range callers {
				wg.Go(func() {
					for call := range calls {
						var batch []storekit.Outgoing
						for i := range size {
							msg := keyedMessage(fmt.Sprint(caller), fmt.Sprint(call*size+i))
							batch = append(batch, outgoing(topics[i%2], msg)...)
						}
						if err := pub.PublishBatch(context.Background(), batch); err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			for place, topic := range topics {
				next := map[string]int{}
				for _, r := range kafkatest.ReadAll(t, brokers, topic) {
					require.Equal(t, fmt.Sprint(2*next[string(r.Key)]+place), string(r.Value))
					next[string(r.Key)]++
				}
				require.Len(t, next, callers)
				for _, n := range next {
					require.Equal(t, calls*size/2, n)
				}
			}
		})
	})

	t.Run("a topic name that kafka never allows fails for good and alone", func(t *testing.T) {
		t.Parallel()
		brokers := kafkatest.Fake(t).Addrs
		pub := newPublisher(t, brokers, kafka.Config{})
		good := kafkatest.Topic(t)
		for _, bad := range []string{"", ".", "..", "with blank", "käse", "a/b", "nul\x00", strings.Repeat("x", 250)} {
			failed := failedAlone(t, pub.PublishBatch(t.Context(), append(outgoing(bad, newMessage("bad")), outgoing(good, newMessage("good"))...)))
			require.True(t, outmill.IsPermanent(failed.Err), "%v", failed.Err)
			require.NotErrorIs(t, failed.Err, outmill.ErrTopicUnavailable)
			require.ErrorContains(t, failed.Err, "a-z, A-Z, 0-9")
			require.ErrorContains(t, failed.Err, "forwarder.Config.MapTopic")
			require.Equal(t, bad, failed.Topic)
		}
		require.Len(t, kafkatest.ReadAll(t, brokers, good), 8)
	})

	t.Run("metrics can tell the publisher from watermill kafkas", func(t *testing.T) {
		t.Parallel()
		pub := newPublisher(t, kafkatest.Fake(t).Addrs, kafka.Config{})
		require.Equal(t, "outmill.kafka", pub.String())
	})
}

// subscribe reads n messages with watermill-kafka's own subscriber.
func subscribe(t *testing.T, brokers []string, topic string, n int) []*message.Message {
	t.Helper()
	config := wkafka.DefaultSaramaSubscriberConfig()
	config.Version = sarama.V2_8_0_0
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	sub, err := wkafka.NewSubscriber(wkafka.SubscriberConfig{
		Brokers:               brokers,
		Unmarshaler:           wkafka.DefaultMarshaler{},
		OverwriteSaramaConfig: config,
		ConsumerGroup:         topic,
	}, nil)
	require.NoError(t, err)
	defer sub.Close()
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	incoming, err := sub.Subscribe(ctx, topic)
	require.NoError(t, err)
	var messages []*message.Message
	for len(messages) < n {
		select {
		case msg := <-incoming:
			require.NotNil(t, msg, "read %d of %d messages", len(messages), n)
			msg.Ack()
			messages = append(messages, msg)
		case <-ctx.Done():
			require.FailNow(t, "time is over", "read %d of %d messages", len(messages), n)
		}
	}
	return messages
}

type marshalerFunc func(topic string, msg *message.Message) (*kgo.Record, error)

func (f marshalerFunc) Marshal(topic string, msg *message.Message) (*kgo.Record, error) {
	return f(topic, msg)
}

func payloadsOf(messages []*message.Message) []string {
	texts := make([]string, len(messages))
	for i, msg := range messages {
		texts[i] = string(msg.Payload)
	}
	return texts
}
