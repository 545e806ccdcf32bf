package kafka_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outmill/outmill/internal/testenv/kafkatest"
	"github.com/outmill/outmill/kafka"
	"github.com/outmill/outmill/storekit"
)

// Every iteration publishes 100,000 messages of 200 bytes to one topic of four partitions
// on a real broker, acknowledged by all replicas, idempotent. A broker that a test starts
// is tuned to start quickly, so measure with
//
//	eval "$(go run ./internal/testenv/engines start -dir DIR)"
//	go test ./kafka -run '^$' -bench . -benchtime 5x
//	go run ./internal/testenv/engines stop -dir DIR
const (
	benchMessages   = 100_000
	benchPayload    = 200
	benchPartitions = 4
	benchBatch      = 500
)

// BenchmarkClients compares the Kafka clients that the publisher could use.
func BenchmarkClients(b *testing.B) {
	payload := make([]byte, benchPayload)
	b.Run("franz-go/batches of 500", func(b *testing.B) {
		brokers, topic := benchTopic(b)
		cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ProducerLinger(0), kgo.ProducerBatchCompression(kgo.NoCompression()))
		require.NoError(b, err)
		defer cl.Close()
		perMessage(b, func() {
			for range benchMessages / benchBatch {
				records := make([]*kgo.Record, benchBatch)
				for i := range records {
					records[i] = &kgo.Record{Topic: topic, Value: payload}
				}
				require.NoError(b, cl.ProduceSync(b.Context(), records...).FirstErr())
			}
		})
	})
	b.Run("franz-go/async", func(b *testing.B) {
		brokers, topic := benchTopic(b)
		cl, err := kgo.NewClient(kgo.SeedBrokers(brokers...), kgo.ProducerBatchCompression(kgo.NoCompression()))
		require.NoError(b, err)
		defer cl.Close()
		perMessage(b, func() {
			var first kgo.FirstErrPromise
			for range benchMessages {
				cl.Produce(b.Context(), &kgo.Record{Topic: topic, Value: payload}, first.Promise())
			}
			require.NoError(b, first.Err())
		})
	})
	b.Run("sarama/batches of 500", func(b *testing.B) {
		brokers, topic := benchTopic(b)
		producer, err := sarama.NewSyncProducer(brokers, saramaProducerConfig())
		require.NoError(b, err)
		defer producer.Close()
		perMessage(b, func() {
			for range benchMessages / benchBatch {
				messages := make([]*sarama.ProducerMessage, benchBatch)
				for i := range messages {
					messages[i] = &sarama.ProducerMessage{Topic: topic, Value: sarama.ByteEncoder(payload)}
				}
				require.NoError(b, producer.SendMessages(messages))
			}
		})
	})
	b.Run("sarama/async", func(b *testing.B) {
		brokers, topic := benchTopic(b)
		producer, err := sarama.NewAsyncProducer(brokers, saramaProducerConfig())
		require.NoError(b, err)
		defer producer.Close()
		perMessage(b, func() {
			go func() {
				for range benchMessages {
					producer.Input() <- &sarama.ProducerMessage{Topic: topic, Value: sarama.ByteEncoder(payload)}
				}
			}()
			for range benchMessages {
				select {
				case <-producer.Successes():
				case err := <-producer.Errors():
					b.Fatal(err)
				}
			}
		})
	})
}

// BenchmarkPublisher measures the publisher, including marshalling.
func BenchmarkPublisher(b *testing.B) {
	for _, callers := range []int{1, 4} {
		for _, size := range []int{100, 500, 1000, 10_000} {
			b.Run(fmt.Sprintf("batches of %d/callers %d", size, callers), func(b *testing.B) {
				benchPublisher(b, kafka.Config{}, size, callers)
			})
		}
	}
	b.Run("single messages/callers 64", func(b *testing.B) {
		benchPublisher(b, kafka.Config{}, 1, 64)
	})
}

// BenchmarkCompression measures the cost of the codecs on one machine, where the network is
// not the bottleneck.
func BenchmarkCompression(b *testing.B) {
	for _, codec := range []kafka.Compression{kafka.CompressionNone, kafka.CompressionSnappy, kafka.CompressionLZ4, kafka.CompressionZstd,
		kafka.CompressionGzip} {
		b.Run(string(codec), func(b *testing.B) {
			benchPublisher(b, kafka.Config{Compression: codec}, benchBatch, 1)
		})
	}
}

func benchPublisher(b *testing.B, config kafka.Config, size, callers int) {
	brokers, topic := benchTopic(b)
	config.Brokers = brokers
	pub, err := kafka.NewPublisher(config, nil)
	require.NoError(b, err)
	defer pub.Close()
	payload := benchJSON()
	perMessage(b, func() {
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for range benchMessages / size / callers {
					batch := make([]storekit.Outgoing, size)
					for i := range batch {
						batch[i] = storekit.Outgoing{Topic: topic, Message: message.NewMessage("0190163d-8694-739b-aea5-966c26f8ad91", payload)}
					}
					if err := pub.PublishBatch(context.Background(), batch); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	})
}

func benchTopic(b *testing.B) (brokers []string, topic string) {
	brokers = kafkatest.Real(b)
	return brokers, kafkatest.CreateTopic(b, brokers, benchPartitions)
}

// perMessage runs the iterations and reports messages per second.
func perMessage(b *testing.B, iteration func()) {
	iteration() // connects, and learns the topic
	b.ResetTimer()
	for range b.N {
		iteration()
	}
	b.ReportMetric(float64(b.N)*benchMessages/b.Elapsed().Seconds(), "msg/s")
	b.ReportMetric(0, "ns/op")
}

func benchJSON() []byte {
	const text = `{"order_id":"0190163d-8694-739b-aea5-966c26f8ad91","customer":"c-48213",` +
		`"lines":[{"sku":"A-1041","quantity":2,"cents":1999},{"sku":"B-77","quantity":1,"cents":499}],"currency":"EUR","note":""}` +
		`                    `
	return []byte(text)[:benchPayload]
}

func saramaProducerConfig() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Idempotent = true
	config.Net.MaxOpenRequests = 1
	config.Producer.Return.Successes = true
	return config
}
