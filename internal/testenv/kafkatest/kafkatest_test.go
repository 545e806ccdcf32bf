package kafkatest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/internal/testenv/kafkaengine"
	"github.com/outmill/outmill/internal/testenv/kafkatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestKafkatest(t *testing.T) {
	t.Parallel()

	t.Run("each topic name is another one that kafka allows", func(t *testing.T) {
		t.Parallel()
		seen := map[string]bool{}
		t.Run("with / and ä and "+strings.Repeat("a long name ", 50), func(t *testing.T) {
			for range 100 {
				topic := kafkatest.Topic(t)
				require.False(t, seen[topic], topic)
				seen[topic] = true
				require.Regexp(t, `^[a-zA-Z0-9._-]{1,249}$`, topic)
			}
		})
	})

	t.Run("all records are read back and the topic is gone with its test", func(t *testing.T) {
		t.Parallel()
		kafkatest.Each(t, func(t *testing.T, brokers []string) {
			var topic string
			t.Run("inner", func(t *testing.T) {
				topic = kafkatest.CreateTopic(t, brokers, 3, "max.message.bytes=100000")
				require.Empty(t, kafkatest.ReadAll(t, brokers, topic))
				cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
				require.NoError(t, err)
				defer cl.Close()
				for _, key := range []string{"a", "b", "c", "d"} {
					for _, value := range []string{"1", "2"} {
						require.NoError(t, cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte(value)}).FirstErr())
					}
				}
				values := map[string]string{}
				for _, r := range kafkatest.ReadAll(t, brokers, topic) {
					values[string(r.Key)] += string(r.Value)
				}
				require.Equal(t, map[string]string{"a": "12", "b": "12", "c": "12", "d": "12"}, values)
			})
			cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
			require.NoError(t, err)
			defer cl.Close()
			require.Eventually(t, func() bool {
				listed, err := kadm.NewClient(cl).ListTopics(context.Background(), topic)
				return err == nil && listed[topic].Err != nil
			}, 30*time.Second, 10*time.Millisecond)
		})
	})

	t.Run("a deleted topic is gone", func(t *testing.T) {
		testenv.Long(t, "topics of each broker")
		t.Parallel()
		kafkatest.Each(t, func(t *testing.T, brokers []string) {
			topic := kafkatest.CreateTopic(t, brokers, 1)
			kafkatest.DeleteTopic(t, brokers, topic)
			kafkatest.CreateTopicNamed(t, brokers, topic, 2)
		})
	})

	t.Run("topics appear by themselves only where it is said", func(t *testing.T) {
		t.Parallel()
		for name, c := range map[string]struct {
			broker kafkatest.Broker
			want   bool
		}{
			"with":    {kafkatest.Fake(t), true},
			"without": {kafkatest.FakeWithoutAutoTopics(t), false},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				cl, err := kgo.NewClient(kgo.SeedBrokers(c.broker.Addrs...), kgo.AllowAutoTopicCreation(), kgo.UnknownTopicRetries(0))
				require.NoError(t, err)
				defer cl.Close()
				err = cl.ProduceSync(t.Context(), &kgo.Record{Topic: kafkatest.Topic(t)}).FirstErr()
				require.Equal(t, c.want, err == nil, "%v", err)
			})
		}
	})

	t.Run("a server that is not Kafka is not accepted as one", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, kafkaengine.Check(t.Context(), kafkatest.Fake(t).Addrs))
		require.Error(t, kafkaengine.Check(t.Context(), []string{"127.0.0.1:1"}))
	})
}

func TestKafkatest_Serial(t *testing.T) {
	t.Run("brokers named by the environment are taken and must answer", func(t *testing.T) {
		addrs := kafkatest.Fake(t).Addrs
		t.Setenv(kafkaengine.EnvURL, strings.Join(addrs, ", "))
		found, err := kafkaengine.Find(t.Context())
		require.NoError(t, err)
		require.Equal(t, addrs, found)

		t.Setenv(kafkaengine.EnvURL, "127.0.0.1:1")
		_, err = kafkaengine.Find(t.Context())
		require.ErrorContains(t, err, kafkaengine.EnvURL+"=127.0.0.1:1")
	})
}
