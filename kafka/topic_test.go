package kafka_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/kafkatest"
	"github.com/outmill/outmill/kafka"
	"github.com/outmill/outmill/storekit"
)

// noTopics prevents a real broker from creating topics.
var noTopics = kafka.Config{NoTopicCreation: true, TopicTimeout: 500 * time.Millisecond}

func TestTopic(t *testing.T) {
	t.Parallel()

	t.Run("an unknown topic is reported in bounded time and fails alone", func(t *testing.T) {
		t.Parallel()
		kafkatest.Each(t, func(t *testing.T, brokers []string) {
			topic, unknown := kafkatest.CreateTopic(t, brokers, 1), kafkatest.Topic(t)
			pub := newPublisher(t, brokers, noTopics)
			began := time.Now()
			err := pub.PublishBatch(t.Context(),
				append(outgoing(unknown, newMessage("lost"), newMessage("lost")), outgoing(topic, newMessage("found"))...))
			require.Less(t, time.Since(began), soon)
			failed := failedMessages(t, err)
			require.Len(t, failed, 2)
			for i, f := range failed {
				require.Equal(t, i, f.Index)
				require.Equal(t, unknown, f.Topic)
				require.ErrorIs(t, f.Err, outmill.ErrTopicUnavailable)
				require.ErrorIs(t, f.Err, kerr.UnknownTopicOrPartition)
				require.False(t, outmill.IsPermanent(f.Err))
				require.ErrorContains(t, f.Err, unknown)
			}
			require.Equal(t, []string{"found"}, payloads(kafkatest.ReadAll(t, brokers, topic)))

			kafkatest.CreateTopicNamed(t, brokers, unknown, 1)
			require.NoError(t, pub.Publish(unknown, newMessage("found")))
		})
	})

	t.Run("an unknown topic keeps no other waiting", func(t *testing.T) {
		t.Parallel()
		kafkatest.Each(t, func(t *testing.T, brokers []string) {
			topic, unknown := kafkatest.CreateTopic(t, brokers, 1), kafkatest.Topic(t)
			pub := newPublisher(t, brokers, kafka.Config{NoTopicCreation: true, TopicTimeout: time.Hour, DeliveryTimeout: time.Hour})
			require.NoError(t, pub.Publish(topic, newMessage("1")))
			ctx, cancel := context.WithCancel(t.Context())
			result := make(chan error, 1)
			go func() {
				result <- pub.PublishBatch(ctx, append(outgoing(unknown, newMessage("lost")), outgoing(topic, newMessage("2"))...))
			}()
			for len(kafkatest.ReadAll(t, brokers, topic)) < 2 {
			}
			require.NoError(t, pub.Publish(topic, newMessage("3")))
			require.Empty(t, result)
			cancel()
			failed := failedAlone(t, <-result)
			require.Equal(t, unknown, failed.Topic)
			require.ErrorIs(t, failed.Err, context.Canceled)
			require.Equal(t, []string{"1", "2", "3"}, payloads(kafkatest.ReadAll(t, brokers, topic)))
		})
	})

	t.Run("a topic that appears while it is waited for is published to", func(t *testing.T) {
		t.Parallel()
		broker := kafkatest.FakeWithoutAutoTopics(t)
		topic := kafkatest.Topic(t)
		asked := broker.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Observe: true, Count: -1, When: asksFor(topic)})
		pub := newPublisher(t, broker.Addrs, kafka.Config{TopicTimeout: soon, DeliveryTimeout: soon})
		result := make(chan error, 1)
		go func() { result <- pub.Publish(topic, newMessage("x")) }()
		require.NoError(t, asked.Wait(t.Context(), 1))
		require.NoError(t, broker.Cluster.CreateTopic(topic, 1, nil))
		require.NoError(t, <-result)
	})

	t.Run("topics are created where broker and publisher allow it", func(t *testing.T) {
		t.Parallel()
		brokers := kafkatest.Fake(t).Addrs
		require.NoError(t, newPublisher(t, brokers, kafka.Config{}).Publish(kafkatest.Topic(t), newMessage("x")))
		failed := failedAlone(t, newPublisher(t, brokers, noTopics).Publish(kafkatest.Topic(t), newMessage("x")))
		require.ErrorIs(t, failed.Err, outmill.ErrTopicUnavailable)
	})

	t.Run("a topic that is deleted under the publisher fails and comes back", func(t *testing.T) {
		t.Parallel()
		kafkatest.Each(t, func(t *testing.T, brokers []string) {
			topic, other := kafkatest.CreateTopic(t, brokers, 2), kafkatest.CreateTopic(t, brokers, 1)
			pub := newPublisher(t, brokers, noTopics)
			both := func(n string) []storekit.Outgoing {
				return append(outgoing(topic, keyedMessage("k", n), keyedMessage("k", n)), outgoing(other, newMessage(n))...)
			}
			require.NoError(t, pub.PublishBatch(t.Context(), both("1")))
			kafkatest.DeleteTopic(t, brokers, topic)
			for range 2 {
				failed := failedMessages(t, pub.PublishBatch(t.Context(), both("2")))
				require.Len(t, failed, 2)
				require.ErrorIs(t, failed[0].Err, outmill.ErrTopicUnavailable)
				require.ErrorIs(t, failed[1].Err, outmill.ErrTopicUnavailable)
			}
			kafkatest.CreateTopicNamed(t, brokers, topic, 2)
			require.NoError(t, pub.PublishBatch(t.Context(), both("3")))

			// The topic is deleted and created again between two calls, so it has a new topic id.
			kafkatest.DeleteTopic(t, brokers, topic)
			kafkatest.CreateTopicNamed(t, brokers, topic, 2)
			if err := pub.PublishBatch(t.Context(), both("4")); err != nil {
				require.ErrorIs(t, failedMessages(t, err)[0].Err, outmill.ErrTopicUnavailable)
				require.NoError(t, pub.PublishBatch(t.Context(), both("4")[:2]))
			}
			require.Equal(t, []string{"4", "4"}, payloads(kafkatest.ReadAll(t, brokers, topic)))
			require.Equal(t, []string{"1", "2", "2", "3", "4"}, payloads(kafkatest.ReadAll(t, brokers, other)))
		})
	})

	t.Run("a topic name that the broker refuses fails for good and alone", func(t *testing.T) {
		t.Parallel()
		for _, key := range []kmsg.Key{kmsg.Metadata, kmsg.Produce} {
			t.Run(key.Name(), func(t *testing.T) {
				t.Parallel()
				broker := kafkatest.FakeWithoutAutoTopics(t, kfake.SeedTopics(1, "refused", "taken"))
				if key == kmsg.Metadata {
					broker.Cluster.ControlKey(int16(key), func(req kmsg.Request) (kmsg.Response, error, bool) {
						broker.Cluster.KeepControl()
						return invalidTopic(req.(*kmsg.MetadataRequest), "refused")
					})
				} else {
					broker.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{key}, Topic: "refused", Err: kerr.InvalidTopicException, Count: -1})
				}
				pub := newPublisher(t, broker.Addrs, kafka.Config{})
				require.NoError(t, pub.Publish("taken", newMessage("y")))
				failed := failedAlone(t, pub.PublishBatch(t.Context(),
					append(outgoing("refused", newMessage("x")), outgoing("taken", newMessage("z"))...)))
				require.Equal(t, "refused", failed.Topic)
				require.True(t, outmill.IsPermanent(failed.Err), "%v", failed.Err)
				require.NotErrorIs(t, failed.Err, outmill.ErrTopicUnavailable)
				require.ErrorIs(t, failed.Err, kerr.InvalidTopicException)
				require.ErrorContains(t, failed.Err, "forwarder.Config.MapTopic")
				require.Equal(t, []string{"y", "z"}, payloads(kafkatest.ReadAll(t, broker.Addrs, "taken")))
			})
		}
	})

	// A partition remembers the numbers of a producer's last batches, and drops a
	// batch that has the numbers of one that it has.
	t.Run("messages after the loss of a topic do not count as repetitions", func(t *testing.T) {
		t.Parallel()
		for _, failure := range []*kerr.Error{kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.TopicAuthorizationFailed} {
			t.Run(failure.Message, func(t *testing.T) {
				t.Parallel()
				broker := kafkatest.FakeWithoutAutoTopics(t, kfake.NumBrokers(2), kfake.SeedTopics(2, "topic"))
				keys := map[int]string{kafka.PartitionOf([]byte("a"), 2): "a", kafka.PartitionOf([]byte("b"), 2): "b"}
				require.Len(t, keys, 2)
				for node := range int32(2) {
					require.NoError(t, broker.Cluster.MoveTopicPartition("topic", node, node))
				}
				// One partition refuses a batch, so the producer numbers its records again. The other
				// partition still has a batch with old numbers when the topic is lost.
				broker.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Partitions: []int32{1}, Err: kerr.InvalidRecord})
				lost := broker.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Partitions: []int32{0}, Err: failure, Count: -1})
				broker.Cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
					return nil, errors.New("hang up"), broker.Cluster.CurrentNode() == 0
				})
				pub := newPublisher(t, broker.Addrs, kafka.Config{})
				failed := failedAlone(t, pub.Publish("topic", keyedMessage(keys[1], "1"), keyedMessage(keys[1], "2"), keyedMessage(keys[0], "x")))
				require.Equal(t, 2, failed.Index)
				require.ErrorIs(t, failed.Err, outmill.ErrTopicUnavailable)
				lost.Remove()
				require.NoError(t, pub.Publish("topic", keyedMessage(keys[1], "3")))
				require.NoError(t, pub.Publish("topic", keyedMessage(keys[1], "4")))
				require.Equal(t, []string{"1", "2", "3", "4"}, payloads(kafkatest.ReadAll(t, broker.Addrs, "topic")))
			})
		}
	})

	t.Run("a topic that is forbidden fails alone and says what is missing", func(t *testing.T) {
		t.Parallel()
		allow := func(topic string, op kmsg.ACLOperation) kfake.ACL {
			return kfake.ACL{Resource: kmsg.ACLResourceTypeTopic, Name: topic, Pattern: kmsg.ACLResourcePatternTypeLiteral, Operation: op,
				Allow: true}
		}
		broker := kafkatest.FakeWithoutAutoTopics(t, kfake.EnableSASL(), kfake.EnableACLs(),
			kfake.SeedTopics(1, "open", "hidden", "readable"),
			kfake.Superuser("PLAIN", "admin", "admin"),
			kfake.User("PLAIN", "app", "secret",
				allow("open", kmsg.ACLOperationWrite), allow("open", kmsg.ACLOperationDescribe), allow("readable", kmsg.ACLOperationDescribe)))
		pub := newPublisher(t, broker.Addrs, kafka.Config{SASL: kafka.SASL{Mechanism: kafka.SASLPlain, Username: "app", Password: "secret"}})
		for _, forbidden := range []string{"hidden", "readable"} {
			failed := failedAlone(t, pub.PublishBatch(t.Context(),
				append(outgoing(forbidden, newMessage("x")), outgoing("open", newMessage("x"))...)))
			require.Equal(t, forbidden, failed.Topic)
			require.ErrorIs(t, failed.Err, outmill.ErrTopicUnavailable)
			require.ErrorIs(t, failed.Err, kerr.TopicAuthorizationFailed)
			require.ErrorContains(t, failed.Err, "WRITE")
		}
		require.EqualValues(t, 2, broker.Cluster.PartitionInfo("open", 0).HighWatermark)
	})

	t.Run("a large call does not wait for its lost topic again and again", func(t *testing.T) {
		t.Parallel()
		broker := kafkatest.FakeWithoutAutoTopics(t)
		require.NoError(t, broker.Cluster.CreateTopic("lost", 1, nil))
		require.NoError(t, broker.Cluster.CreateTopic("kept", 1, nil))
		pub := newPublisher(t, broker.Addrs, kafka.Config{NoTopicCreation: true, MaxBufferedRecords: 10})
		require.NoError(t, pub.Publish("lost", newMessage("1")))
		broker.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "lost", Err: kerr.TopicAuthorizationFailed})
		produced := broker.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "lost", Observe: true, Count: -1})
		var batch []storekit.Outgoing
		for range 50 {
			batch = append(batch, outgoing("lost", newMessage("2"))...)
			batch = append(batch, outgoing("kept", newMessage("2"))...)
		}
		failed := failedMessages(t, pub.PublishBatch(t.Context(), batch))
		require.Len(t, failed, 50)
		for _, f := range failed {
			require.Equal(t, "lost", f.Topic)
			require.True(t, errors.Is(f.Err, outmill.ErrTopicUnavailable))
		}
		require.Zero(t, produced.Hits(), "requests for the lost topic after it was lost")
		require.EqualValues(t, 50, broker.Cluster.PartitionInfo("kept", 0).HighWatermark)
	})
}

func asksFor(topic string) func(kmsg.Request) bool {
	return func(r kmsg.Request) bool {
		for _, t := range r.(*kmsg.MetadataRequest).Topics {
			if t.Topic != nil && *t.Topic == topic {
				return true
			}
		}
		return false
	}
}

// invalidTopic answers a request for the topic like a broker that refuses the name.
func invalidTopic(req *kmsg.MetadataRequest, name string) (kmsg.Response, error, bool) {
	for _, asked := range req.Topics {
		if asked.Topic == nil || *asked.Topic != name {
			continue
		}
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		topic := kmsg.NewMetadataResponseTopic()
		topic.Topic, topic.ErrorCode = asked.Topic, kerr.InvalidTopicException.Code
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	}
	return nil, nil, false
}
