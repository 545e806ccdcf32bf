package kafka_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/kafka"
	"github.com/outmill/outmill/storekit"
)

// The broker runs in this process, so that the examples need no other program.
func exampleBroker() *kfake.Cluster {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "orders"))
	if err != nil {
		panic(err)
	}
	return cluster
}

func Example() {
	broker := exampleBroker()
	defer broker.Close()

	pub, err := kafka.NewPublisher(kafka.Config{Brokers: broker.ListenAddrs()}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pub.Close()

	msg := message.NewMessage("order-1", []byte(`{"total":1999}`))
	outmill.SetKey(msg, "customer-7")
	fmt.Println(pub.Publish("orders", msg))
	// Output: <nil>
}

func ExamplePublisher_PublishBatch() {
	broker := exampleBroker()
	defer broker.Close()
	pub, err := kafka.NewPublisher(kafka.Config{Brokers: broker.ListenAddrs(), TopicTimeout: time.Millisecond}, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pub.Close()

	err = pub.PublishBatch(context.Background(), []storekit.Outgoing{
		{Topic: "orders", Message: message.NewMessage("1", []byte("fine"))},
		{Topic: "orders", Message: message.NewMessage("2", make([]byte, 2_000_000))},
		{Topic: "no-such-topic", Message: message.NewMessage("3", []byte("fine"))},
	})
	var failed *storekit.PublishError
	if errors.As(err, &failed) {
		for _, f := range failed.Failed {
			switch {
			case outmill.IsPermanent(f.Err):
				fmt.Println(f.MessageID, "will never be delivered")
			case errors.Is(f.Err, outmill.ErrTopicUnavailable):
				fmt.Println(f.MessageID, "waits for its topic")
			default:
				fmt.Println(f.MessageID, "waits for the brokers")
			}
		}
	}
	// Output:
	// 2 will never be delivered
	// 3 waits for its topic
}

// The settings for a broker with passwords and TLS.
func ExampleConfig() {
	_, err := kafka.NewPublisher(
		kafka.Config{
			Brokers:     []string{"kafka-1.example.com:9093", "kafka-2.example.com:9093"},
			TLS:         &tls.Config{MinVersion: tls.VersionTLS12},
			Compression: kafka.CompressionZstd,
			SASL: kafka.SASL{
				Mechanism: kafka.SASLScramSHA512,
				Username:  "orders",
				Password:  os.Getenv("KAFKA_PASSWORD"),
			},
		},
		nil,
	)
	fmt.Println(err)
	// Output: outmill: invalid configuration: kafka.Config.SASL.Username or Password is empty: SCRAM-SHA-512 requires both
}
