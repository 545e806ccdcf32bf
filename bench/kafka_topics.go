package main

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// partitions is how many a topic has: as many as this machine's Kafka can use.
const partitions = 4

var topicNumber atomic.Int64

// newTopic makes a topic that nothing was produced to.
func newTopic(ctx context.Context, broker string) (string, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(broker))
	if err != nil {
		return "", err
	}
	defer client.Close()
	name := fmt.Sprintf("bench-%d-%d", os.Getpid(), topicNumber.Add(1))
	made, err := kadm.NewClient(client).CreateTopic(ctx, partitions, 1, nil, name)
	if err == nil {
		err = made.Err
	}
	return name, err
}

// counter reads how many records a topic has.
type counter struct {
	client *kgo.Client
	topic  string
}

func newCounter(broker, topic string) (*counter, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(broker))
	return &counter{client, topic}, err
}

func (c *counter) count(ctx context.Context) (int64, error) {
	ends, err := kadm.NewClient(c.client).ListEndOffsets(ctx, c.topic)
	if err != nil {
		return 0, err
	}
	var n int64
	ends.Each(func(o kadm.ListedOffset) { n += o.Offset })
	return n, ends.Error()
}
