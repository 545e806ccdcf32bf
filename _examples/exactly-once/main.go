// Command exactly-once counts messages from Kafka in a database, and is killed ten times
// while it counts. Kafka delivers each message several times, and the count is still right.
//
// The consumer is a child process with Outmill's inbox: one transaction commits the count and
// the note that the message was counted. The parent sends the messages, kills the child with
// SIGKILL, and starts another child, which reads the topic from its beginning. The program
// needs only SQLite, in a temporary file, and starts franz-go's kfake as its Kafka broker.
//
//	go run ./exactly-once
//	go run ./exactly-once -messages 20000 -kills 30
//
// The last line has the counts. The exit code is 1 if a message was counted twice, or not at
// all.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/outmill/outmill/kafka"
)

const (
	topic = "visits"
	// last is the message that ends the consumer: all others come before it.
	last = "last"
)

type options struct {
	messages, kills int
	// consume, broker and database are for the child.
	consume          bool
	broker, database string
}

func main() {
	var opts options
	flag.IntVar(&opts.messages, "messages", 3000, "how many different messages to send")
	flag.IntVar(&opts.kills, "kills", 10, "how often to kill the consumer")
	flag.BoolVar(&opts.consume, "consume", false, "be the consumer; the parent starts it so")
	flag.StringVar(&opts.broker, "broker", "", "the consumer's Kafka broker")
	flag.StringVar(&opts.database, "database", "", "the consumer's SQLite file")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	sum, err := run(ctx, opts)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "exactly-once:", err)
		os.Exit(1)
	}
	if opts.consume {
		return
	}
	fmt.Println(sum)
	if !sum.ok() {
		os.Exit(1)
	}
}

// summary has the counts of a run.
type summary struct{ messages, counted, deliveries, kills int }

func (s summary) ok() bool { return s.counted == s.messages }

func (s summary) String() string {
	return fmt.Sprintf("messages=%d deliveries=%d kills=%d counted=%d", s.messages, s.deliveries, s.kills, s.counted)
}

func run(ctx context.Context, opts options) (summary, error) {
	switch {
	case opts.consume:
		return summary{}, consume(ctx, opts.broker, opts.database)
	case opts.messages < 1 || opts.kills < 0:
		return summary{}, errors.New("-messages wants 1 or more, and -kills 0 or more")
	}
	dir, err := os.MkdirTemp("", "outmill-exactly-once-")
	if err != nil {
		return summary{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, topic))
	if err != nil {
		return summary{}, fmt.Errorf("start the in-process Kafka: %w", err)
	}
	defer cluster.Close()
	broker := cluster.ListenAddrs()[0]
	if err := send(broker, opts.messages); err != nil {
		return summary{}, err
	}
	o := observer{broker: broker, database: filepath.Join(dir, "visits.db"), opts: opts}
	return o.watch(ctx)
}

// send publishes every message, every third one twice.
func send(broker string, messages int) error {
	pub, err := kafka.NewPublisher(kafka.Config{Brokers: []string{broker}}, watermill.NopLogger{})
	if err != nil {
		return err
	}
	defer func() { _ = pub.Close() }()
	var all []*message.Message
	for i := range messages {
		uuid := fmt.Sprintf("visit-%d", i)
		all = append(all, message.NewMessage(uuid, nil))
		if i%3 == 0 {
			all = append(all, message.NewMessage(uuid, nil))
		}
	}
	return pub.Publish(topic, append(all, message.NewMessage(last, nil))...)
}
