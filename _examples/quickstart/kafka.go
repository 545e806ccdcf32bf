package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/ThreeDotsLabs/watermill"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// broker is a Kafka cluster and the topic of this run.
type broker struct {
	brokers []string
	topic   string
	close   func()
}

// startKafka starts a broker in this process, unless the flags name one. It creates a topic that
// no other run uses.
func startKafka(ctx context.Context, address string) (*broker, error) {
	b := &broker{topic: "outmill-quickstart-" + watermill.NewShortUUID(), close: func() {}}
	if address != "" {
		b.brokers = strings.Split(address, ",")
	} else {
		cluster, err := kfake.NewCluster(kfake.NumBrokers(1))
		if err != nil {
			return nil, fmt.Errorf("start the in-process Kafka: %w", err)
		}
		b.brokers, b.close = cluster.ListenAddrs(), cluster.Close
	}
	if err := b.createTopic(ctx); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *broker) createTopic(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	admin := kadm.NewClient(client)
	created, err := admin.CreateTopic(ctx, 4, 1, nil, b.topic)
	if err == nil {
		err = created.Err
	}
	if err == nil {
		err = awaitLeaders(ctx, admin, b.topic)
	}
	if err != nil {
		return fmt.Errorf("create topic %s on %s: %w; check that a Kafka broker listens there", b.topic, strings.Join(b.brokers, ","), err)
	}
	return nil
}

// deleteTopic deletes the topic, also after an interruption.
func (b *broker) deleteTopic(ctx context.Context) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(b.brokers...))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer cancel()
	_, err = kadm.NewClient(client).DeleteTopic(ctx, b.topic)
	return err
}

// awaitLeaders waits until the partitions of a new topic can be read, because sarama does not
// retry the first read.
func awaitLeaders(ctx context.Context, admin *kadm.Client, topic string) error {
	for {
		offsets, err := admin.ListEndOffsets(ctx, topic)
		if err == nil {
			err = offsets.Error()
		}
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// saramaConfig makes a new consumer read the topic from its beginning.
func saramaConfig() *sarama.Config {
	config := wkafka.DefaultSaramaSubscriberConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Version = sarama.V2_1_0_0
	return config
}
