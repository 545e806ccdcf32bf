package forwarder_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/internal/testenv/kafkatest"
	"github.com/outmill/outmill/internal/testenv/proc"
	"github.com/outmill/outmill/kafka"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// ours is the publisher of package kafka, which takes batches.
func ours(tb testing.TB, brokers []string) message.Publisher {
	tb.Helper()
	pub, err := kafka.NewPublisher(kafka.Config{Brokers: brokers, DeliveryTimeout: 2 * time.Second, TopicTimeout: 50 * time.Millisecond}, nil)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, pub.Close()) })
	return pub
}

// byMessages hides that the publisher takes records.
type byMessages struct{ storekit.BatchPublisher }

// changing takes every second batch as messages.
type changing struct {
	*kafka.Publisher
	batches atomic.Int64
}

func (c *changing) PublishesRaw(message.Publisher) func(ctx context.Context, batch []roles.RawRecord) error {
	raw := c.Publisher.PublishesRaw(c.Publisher)
	return func(ctx context.Context, batch []roles.RawRecord) error {
		if c.batches.Add(1)%2 == 0 {
			return raw(ctx, batch)
		}
		return c.PublishBatch(ctx, messagesOf(batch))
	}
}

// watermills is the publisher of watermill-kafka, which takes one message at a time.
func watermills(tb testing.TB, brokers []string) message.Publisher {
	tb.Helper()
	config := wkafka.DefaultSaramaSyncPublisherConfig()
	config.Producer.Retry.Max = 1
	config.Producer.Retry.Backoff = 10 * time.Millisecond
	config.Metadata.Retry.Max = 1
	config.Metadata.Retry.Backoff = 10 * time.Millisecond
	byKey := wkafka.NewWithPartitioningMarshaler(func(_ string, msg *message.Message) (string, error) {
		return msg.Metadata.Get(outmill.MetadataKey), nil
	})
	pub, err := wkafka.NewPublisher(wkafka.PublisherConfig{Brokers: brokers, Marshaler: byKey, OverwriteSaramaConfig: config}, nil)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, pub.Close()) })
	return pub
}

// eachPublisher runs the test with both publishers.
func eachPublisher(t *testing.T, test func(t *testing.T, connect func(tb testing.TB, brokers []string) message.Publisher)) {
	t.Helper()
	t.Run("with Outmill's publisher", func(t *testing.T) {
		t.Parallel()
		test(t, ours)
	})
	t.Run("with Outmill's publisher, raw or not", func(t *testing.T) {
		t.Parallel()
		testenv.Long(t, "Kafka with batches of messages, and with those and raw ones in turn")
		for name, change := range map[string]func(*kafka.Publisher) message.Publisher{
			"messages": func(pub *kafka.Publisher) message.Publisher { return byMessages{pub} },
			"in turn":  func(pub *kafka.Publisher) message.Publisher { return &changing{Publisher: pub} },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, func(tb testing.TB, brokers []string) message.Publisher {
					return change(ours(tb, brokers).(*kafka.Publisher))
				})
			})
		}
	})
	t.Run("with watermill-kafka's publisher", func(t *testing.T) {
		t.Parallel()
		test(t, watermills)
	})
}

func uuidOf(r *kgo.Record) string {
	for _, h := range r.Headers {
		if h.Key == wkafka.UUIDHeaderKey {
			return string(h.Value)
		}
	}
	return ""
}

// inKafka returns the message ids of the topic, and the ids of each key in the order of
// their first arrival.
func inKafka(tb testing.TB, brokers []string, topic string) (ids []string, byKey map[string][]string) {
	tb.Helper()
	byKey = map[string][]string{}
	for _, r := range kafkatest.ReadAll(tb, brokers, topic) {
		id, key := uuidOf(r), string(r.Key)
		ids = append(ids, id)
		if !slices.Contains(byKey[key], id) {
			byKey[key] = append(byKey[key], id)
		}
	}
	return ids, byKey
}

func TestForwarder_Kafka(t *testing.T) {
	t.Parallel()

	t.Run("everything is in Kafka once and in the order of its keys", func(t *testing.T) {
		t.Parallel()
		eachPublisher(t, func(t *testing.T, connect func(tb testing.TB, brokers []string) message.Publisher) {
			kafkatest.Each(t, func(t *testing.T, brokers []string) {
				topic := kafkatest.CreateTopic(t, brokers, 4)
				store := newStore(t)
				register(t, store)
				keys := []string{"a", "b", "c", "d"}
				for i := range 100 {
					for _, key := range keys {
						add(t, store, rec(topic, key, nameOf("", key, i)))
					}
				}
				start(t, store, connect(t, brokers), quick())
				requireEmpty(t, store)
				ids, byKey := inKafka(t, brokers, topic)
				require.Len(t, ids, 400)
				for _, key := range keys {
					require.Equal(t, namesOf("", key, 100), byKey[key])
				}
			})
		})
	})

	t.Run("an outage of Kafka costs only time", func(t *testing.T) {
		t.Parallel()
		eachPublisher(t, func(t *testing.T, connect func(tb testing.TB, brokers []string) message.Publisher) {
			broker := newRestartable(t)
			brokers := broker.addrs()
			topic := kafkatest.CreateTopic(t, brokers, 2)
			store := newStore(t)
			register(t, store)
			l := journal.New()
			cfg := quick()
			cfg.Retry = mortal()
			// After an error sarama does not use a part of a broker for 10 s.
			cfg.MaxErrorBackoff = 15 * time.Second
			startLogged(t, store, connect(t, brokers), cfg, l)
			appended := map[string]int{}
			addSome := func() {
				for range 50 {
					for _, key := range []string{"a", "b"} {
						add(t, store, rec(topic, key, nameOf("", key, appended[key])))
						appended[key]++
					}
				}
			}
			const outages = 2
			for outage := range outages {
				addSome()
				requireEmpty(t, store)
				// Some messages are in flight when the broker stops.
				addSome()
				broker.stop()
				addSome()
				require.Eventually(t, func() bool { return len(l.Find("The broker accepted no message")) > outage }, patience, tick)
				requireUntouched(t, store)
				broker.start(t)
			}
			requireEmpty(t, store)
			_, byKey := inKafka(t, brokers, topic)
			for key, n := range appended {
				require.Equal(t, namesOf("", key, n), byKey[key])
			}
		})
	})

	t.Run("a topic that Kafka does not have is held until it has", func(t *testing.T) {
		t.Parallel()
		brokers := kafkatest.FakeWithoutAutoTopics(t).Addrs
		there := kafkatest.CreateTopic(t, brokers, 1)
		missing := kafkatest.Topic(t)
		store := newStore(t)
		register(t, store)
		add(t, store, recs(missing, "a", 50)...)
		add(t, store, recs(there, "a", 50)...)
		cfg := quick()
		cfg.Retry = mortal()
		cfg.BatchSize = 20
		l := journal.New()
		startLogged(t, store, ours(t, brokers), cfg, l)
		require.Eventually(t, func() bool { return len(list(t, store, "")) == 50 }, patience, tick)
		require.Contains(t, l.Wait(t, "the forwarder holds it"), missing)
		requireUntouched(t, store)
		kafkatest.CreateTopicNamed(t, brokers, missing, 1)
		requireEmpty(t, store)
		_, byKey := inKafka(t, brokers, missing)
		require.Equal(t, namesOf(missing, "a", 50), byKey["a"])
	})

	t.Run("a topic name that Kafka never allows makes its record dead and holds no topic", func(t *testing.T) {
		t.Parallel()
		brokers := kafkatest.FakeWithoutAutoTopics(t).Addrs
		topic := kafkatest.CreateTopic(t, brokers, 1)
		const bad = `o'rd"ers`
		store := newStore(t)
		register(t, store)
		add(t, store, rec(bad, "a", "bad"), rec(bad, "a", "mapped"), rec("neighbour", "a", "neighbour"))
		cfg := quick()
		cfg.MapTopic = func(name string, msg *message.Message) string {
			if msg.UUID == "bad" {
				return name
			}
			return topic
		}
		l := journal.New()
		startLogged(t, store, ours(t, brokers), cfg, l)
		dead := requireDead(t, store, "bad")
		require.Contains(t, dead[0].LastError, "forwarder.Config.MapTopic")
		require.Contains(t, dead[0].LastError, "a-z, A-Z, 0-9")
		require.Equal(t, 1, dead[0].Attempts)
		require.Eventually(t, func() bool { return len(list(t, store, "")) == 1 }, patience, tick)
		ids, _ := inKafka(t, brokers, topic)
		require.ElementsMatch(t, []string{"mapped", "neighbour"}, ids)
		require.Empty(t, l.Find("the forwarder holds it"))
	})

	t.Run("a nil payload is a tombstone in Kafka, and an empty one is none", func(t *testing.T) {
		t.Parallel()
		eachPublisher(t, func(t *testing.T, connect func(tb testing.TB, brokers []string) message.Publisher) {
			kafkatest.Each(t, func(t *testing.T, brokers []string) {
				topic := kafkatest.CreateTopic(t, brokers, 1)
				store := newStore(t)
				register(t, store)
				add(t, store, &outmill.Record{Topic: topic, Key: "k", MessageID: "nil"},
					&outmill.Record{Topic: topic, Key: "k", MessageID: "empty", Payload: []byte{}})
				start(t, store, connect(t, brokers), quick())
				requireEmpty(t, store)
				values := map[string][]byte{}
				for _, r := range kafkatest.ReadAll(t, brokers, topic) {
					values[uuidOf(r)] = r.Value
				}
				require.Equal(t, map[string][]byte{"nil": nil, "empty": {}}, values)
			})
		})
	})

	t.Run("a message that is too large for Kafka goes dead alone", func(t *testing.T) {
		t.Parallel()
		brokers := kafkatest.FakeWithoutAutoTopics(t).Addrs
		topic := kafkatest.CreateTopic(t, brokers, 1)
		store := newStore(t)
		register(t, store)
		records := recs(topic, "a", 20)
		records[7].Payload = make([]byte, 2<<20)
		add(t, store, records...)
		start(t, store, ours(t, brokers), quick())
		dead := requireDead(t, store, nameOf(topic, "a", 7))
		require.Contains(t, dead[0].LastError, "larger than the publisher can take: 2097")
		require.Zero(t, dead[0].Attempts)
		require.Eventually(t, func() bool { return len(list(t, store, "")) == 1 }, patience, tick)
		_, byKey := inKafka(t, brokers, topic)
		require.Equal(t, slices.Delete(namesOf(topic, "a", 20), 7, 8), byKey["a"])
	})

	t.Run("a Kafka that refuses some requests costs no attempt", func(t *testing.T) {
		t.Parallel()
		eachPublisher(t, func(t *testing.T, connect func(tb testing.TB, brokers []string) message.Publisher) {
			broker := kafkatest.FakeWithoutAutoTopics(t)
			topic := kafkatest.CreateTopic(t, broker.Addrs, 2)
			var requests atomic.Int64
			broker.Cluster.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
				broker.Cluster.KeepControl()
				n := requests.Add(1)
				if n%4 != 0 || n > 60 {
					return nil, nil, false
				}
				return refusal(req.(*kmsg.ProduceRequest), kerr.NotEnoughReplicas), nil, true
			})
			store := newStore(t)
			register(t, store)
			add(t, store, recs(topic, "a", 100)...)
			add(t, store, recs(topic, "b", 100)...)
			cfg := quick()
			cfg.BatchSize = 10
			start(t, store, connect(t, broker.Addrs), cfg)
			requireEmpty(t, store)
			_, byKey := inKafka(t, broker.Addrs, topic)
			require.Equal(t, namesOf(topic, "a", 100), byKey["a"])
			require.Equal(t, namesOf(topic, "b", 100), byKey["b"])
		})
	})
}

// restartable is a fake Kafka that tests can stop and start again with its data.
type restartable struct {
	dir     string
	port    int
	cluster *kfake.Cluster
}

func newRestartable(t *testing.T) *restartable {
	port, err := proc.FreePort()
	require.NoError(t, err)
	r := &restartable{dir: t.TempDir(), port: port}
	r.start(t)
	t.Cleanup(r.stop)
	return r
}

func (r *restartable) start(t *testing.T) {
	var err error
	r.cluster, err = kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(r.port), kfake.DataDir(r.dir))
	require.NoError(t, err)
}

func (r *restartable) stop() { r.cluster.Close() }

func (r *restartable) addrs() []string { return r.cluster.ListenAddrs() }

// refusal answers a produce request with an error for all partitions.
func refusal(req *kmsg.ProduceRequest, err *kerr.Error) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	for _, topic := range req.Topics {
		t := kmsg.NewProduceResponseTopic()
		t.Topic, t.TopicID = topic.Topic, topic.TopicID
		for _, partition := range topic.Partitions {
			p := kmsg.NewProduceResponseTopicPartition()
			p.Partition, p.ErrorCode = partition.Partition, err.Code
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}
