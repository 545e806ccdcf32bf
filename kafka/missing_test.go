package kafka_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/kafkaengine"
	"github.com/outmill/outmill/internal/testenv/kafkatest"
	"github.com/outmill/outmill/kafka"
)

func TestMissingTopic(t *testing.T) {
	t.Parallel()
	t.Run("the error says that the publisher does not ask for topics", func(t *testing.T) {
		t.Parallel()
		kafkatest.Each(t, func(t *testing.T, brokers []string) {
			requireMissing(t, newPublisher(t, brokers, noTopics),
				"this publisher does not ask the brokers to create it (kafka.Config.NoTopicCreation)")
		})
	})

	t.Run("the error says whether the brokers create topics", func(t *testing.T) {
		t.Parallel()
		for setting, want := range map[string]string{
			"true": "the brokers create missing topics (auto.create.topics.enable=true), " +
				"but not this one within kafka.Config.TopicTimeout (10ms)",
			"false":     "the brokers create no missing topics (auto.create.topics.enable=false)",
			"forbidden": "the brokers have not created it, so auto.create.topics.enable is probably false",
			"lost":      "the brokers have not created it, so auto.create.topics.enable is probably false",
		} {
			t.Run(setting, func(t *testing.T) {
				t.Parallel()
				broker := kafkatest.FakeWithoutAutoTopics(t)
				broker.Cluster.ControlKey(int16(kmsg.DescribeConfigs), func(req kmsg.Request) (kmsg.Response, error, bool) {
					broker.Cluster.KeepControl()
					return brokerSetting(req.(*kmsg.DescribeConfigsRequest), setting)
				})
				requireMissing(t, newPublisher(t, broker.Addrs, kafka.Config{TopicTimeout: 10 * time.Millisecond}), want)
			})
		}
	})

	t.Run("the error of a topic that was made again asks for no topic", func(t *testing.T) {
		t.Parallel()
		broker := kafkatest.FakeWithoutAutoTopics(t, kfake.SeedTopics(1, "topic"))
		broker.Cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.UnknownTopicID, Count: -1})
		failed := failedAlone(t, newPublisher(t, broker.Addrs, kafka.Config{}).Publish("topic", newMessage("x")))
		require.ErrorIs(t, failed.Err, outmill.ErrTopicUnavailable)
		require.ErrorIs(t, failed.Err, kerr.UnknownTopicID)
		require.ErrorContains(t, failed.Err, "deleted and created again")
		require.NotContains(t, failed.Err.Error(), "map the topic")
	})
}

// createsNoTopics uses a real broker that creates no topics.
func createsNoTopics(t *testing.T, engine *kafkaengine.Engine) {
	pub := newPublisher(t, []string{engine.Addr}, kafka.Config{TopicTimeout: 10 * time.Millisecond})
	requireMissing(t, pub, "the brokers create no missing topics (auto.create.topics.enable=false)")
}

func requireMissing(t *testing.T, pub *kafka.Publisher, want string) {
	t.Helper()
	topic := kafkatest.Topic(t)
	failed := failedAlone(t, pub.Publish(topic, newMessage("x")))
	require.ErrorIs(t, failed.Err, outmill.ErrTopicUnavailable)
	require.ErrorIs(t, failed.Err, kerr.UnknownTopicOrPartition)
	require.ErrorContains(t, failed.Err, topic)
	require.ErrorContains(t, failed.Err, "create it")
	require.ErrorContains(t, failed.Err, want)
}

// brokerSetting answers a question for the broker's configuration.
func brokerSetting(req *kmsg.DescribeConfigsRequest, setting string) (kmsg.Response, error, bool) {
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	for _, asked := range req.Resources {
		resource := kmsg.NewDescribeConfigsResponseResource()
		resource.ResourceType, resource.ResourceName = asked.ResourceType, asked.ResourceName
		switch setting {
		case "lost":
			return resp, nil, true
		case "forbidden":
			resource.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		default:
			config := kmsg.NewDescribeConfigsResponseResourceConfig()
			config.Name, config.Value = "auto.create.topics.enable", &setting
			resource.Configs = append(resource.Configs, config)
		}
		resp.Resources = append(resp.Resources, resource)
	}
	return resp, nil, true
}
