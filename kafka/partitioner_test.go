package kafka_test

import (
	"fmt"
	"testing"

	"github.com/IBM/sarama"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill/internal/testenv/kafkatest"
	"github.com/outmill/outmill/kafka"
)

func TestPartitioner(t *testing.T) {
	t.Parallel()

	t.Run("a key goes where saramas default partitioner puts it", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			key := rapid.SliceOf(rapid.Byte()).Draw(t, "key")
			partitions := rapid.Int32Range(1, 10_000).Draw(t, "partitions")
			theirs := sarama.NewHashPartitioner("topic")
			want, err := theirs.Partition(&sarama.ProducerMessage{Key: sarama.ByteEncoder(key)}, partitions)
			require.NoError(t, err)
			require.Equal(t, int(want), kafka.PartitionOf(key, int(partitions)))
		})
	})

	t.Run("sarama and this publisher put the same keys into the same partitions", func(t *testing.T) {
		t.Parallel()
		kafkatest.Each(t, func(t *testing.T, brokers []string) {
			topic := kafkatest.CreateTopic(t, brokers, 7)
			producer, err := sarama.NewSyncProducer(brokers, saramaProducerConfig())
			require.NoError(t, err)
			defer producer.Close()
			pub := newPublisher(t, brokers, kafka.Config{})
			for i := range 50 {
				key := fmt.Sprintf("key-%d", i)
				_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder(key),
					Value: sarama.StringEncoder("theirs")})
				require.NoError(t, err)
				require.NoError(t, pub.Publish(topic, keyedMessage(key, "ours")))
			}
			partitions := map[string]map[string]int32{"theirs": {}, "ours": {}}
			for _, r := range kafkatest.ReadAll(t, brokers, topic) {
				partitions[string(r.Value)][string(r.Key)] = r.Partition
			}
			require.Len(t, partitions["theirs"], 50)
			require.Equal(t, partitions["theirs"], partitions["ours"])
		})
	})

	t.Run("messages without a key reach all partitions", func(t *testing.T) {
		t.Parallel()
		kafkatest.Each(t, func(t *testing.T, brokers []string) {
			topic := kafkatest.CreateTopic(t, brokers, 3)
			pub := newPublisher(t, brokers, kafka.Config{})
			seen := map[int32]bool{}
			for round := 0; len(seen) < 3; round++ {
				require.Less(t, round, 100, "partitions seen: %v", seen)
				batch := numbered(200)
				for _, msg := range batch {
					msg.Payload = make([]byte, 2000)
				}
				require.NoError(t, pub.Publish(topic, batch...))
				for _, r := range kafkatest.ReadAll(t, brokers, topic) {
					require.Nil(t, r.Key)
					seen[r.Partition] = true
				}
			}
		})
	})
}
