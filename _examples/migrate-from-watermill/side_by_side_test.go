package main

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"testing"

	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	wforwarder "github.com/ThreeDotsLabs/watermill/components/forwarder"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/internal/testenv/kafkatest"
	"github.com/outmill/outmill/kafka/watermillkafka"
	"github.com/outmill/outmill/publisher"
)

const perWriter = 150

func TestSideBySide(t *testing.T) {
	t.Parallel()

	t.Run("old and new run side by side and everything arrives", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.createLog(t, "forwarder_topic", "")
		w.createLog(t, "plain", "readers")
		w.createQueue(t, "queue")
		brokers := kafkatest.FakeWithoutAutoTopics(t).Addrs
		for _, topic := range []string{"orders", "plain", "queue"} {
			kafkatest.CreateTopicNamed(t, brokers, topic, 3)
		}
		startForwarder(t, w, brokers)
		old := startOldForwarder(t, w, brokers)

		enveloped := writeInBackground(t, w, 2, perWriter, func(tx *sql.Tx, id string) {
			publishEnveloped(t, tx, "forwarder_topic", "orders", msg("old-"+id))
		})
		plain := writeInBackground(t, w, 2, perWriter, func(tx *sql.Tx, id string) { publishOld(t, tx, oldSchema, "plain", msg(id)) })
		queue := writeInBackground(t, w, 2, perWriter, func(tx *sql.Tx, id string) { publishOld(t, tx, writerToQueue{}, "queue", msg(id)) })
		fresh, err := publisher.New(w.store, publisher.Config{RequireTx: true}, nil)
		require.NoError(t, err)
		direct := writeInBackground(t, w, 2, perWriter, func(tx *sql.Tx, id string) { publishNew(t, w, fresh, tx, "orders", msg("new-"+id)) })

		tools := [][]string{
			w.sourceArgs("-topic", "forwarder_topic", "-enveloped", "-key", "customer", "-batch", "10"),
			w.sourceArgs("-topic", "plain", "-consumer-group", "readers", "-key", "customer", "-batch", "10"),
			w.sourceArgs("-topic", "queue", "-queue", "-key", "customer", "-batch", "10"),
		}
		old.waitFor(t, 20)
		var running []*tool
		for _, args := range tools {
			running = append(running, start(t, args))
		}
		old.waitFor(t, 40)
		old.stop(t)
		writtenEnveloped, writtenPlain, writtenQueue, writtenNew := enveloped.stop(), plain.stop(), queue.stop(), direct.stop()
		for i, tl := range running {
			tl.stop()
			require.NoError(t, <-tl.ended, tl.says)
			output, err := runOnce(t, tools[i])
			require.NoError(t, err, output)
			require.Contains(t, output, "left=0")
		}
		requireForwarded(t, w)

		requireEachOnce(t, writtenPlain, inKafka(t, brokers, "plain"))
		requireEachOnce(t, writtenQueue, inKafka(t, brokers, "queue"))
		orders := inKafka(t, brokers, "orders")
		seen := map[string]int{}
		for _, id := range orders {
			seen[id]++
		}
		for prefix, written := range map[string]map[string][]string{"old-": writtenEnveloped, "new-": writtenNew} {
			for _, all := range written {
				for _, id := range all {
					require.NotZero(t, seen[prefix+id], "%s is lost", prefix+id)
					if !old.published(prefix + id) {
						require.Equal(t, 1, seen[prefix+id], "%s went through the outbox alone", prefix+id)
					}
					delete(seen, prefix+id)
				}
			}
		}
		require.Empty(t, seen, "nothing that was rolled back")
	})

	t.Run("the order of a key is kept when the old table is drained before new writers begin", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.createLog(t, "forwarder_topic", "")
		brokers := kafkatest.FakeWithoutAutoTopics(t).Addrs
		kafkatest.CreateTopicNamed(t, brokers, "orders", 4)
		startForwarder(t, w, brokers)
		tl := start(t, w.sourceArgs("-topic", "forwarder_topic", "-enveloped", "-key", "customer", "-batch", "10"))

		writers := writeInBackground(t, w, 4, perWriter, func(tx *sql.Tx, id string) {
			publishEnveloped(t, tx, "forwarder_topic", "orders", msg(id))
		})
		want := writers.stop()
		tl.stop()
		require.NoError(t, <-tl.ended)
		output, err := runOnce(t, w.sourceArgs("-topic", "forwarder_topic", "-enveloped", "-key", "customer"))
		require.NoError(t, err, output)
		fresh, err := publisher.New(w.store, publisher.Config{}, nil)
		require.NoError(t, err)
		for key := range want {
			for i := range 20 {
				id := fmt.Sprintf("%s/n%03d", key, i)
				w.in(t, func(tx *sql.Tx) bool { publishNew(t, w, fresh, tx, "orders", msg(id)); return true })
				want[key] = append(want[key], id)
			}
		}
		requireForwarded(t, w)
		requireEachOnce(t, want, inKafka(t, brokers, "orders"))
	})
}

func publishNew(t *testing.T, w *world, pub *publisher.Publisher, tx *sql.Tx, topic string, m *message.Message) {
	outmill.SetKey(m, m.Metadata.Get("customer"))
	ctx := w.store.WithTx(context.WithoutCancel(t.Context()), tx)
	if err := pub.WithContext(ctx).Publish(topic, m); err != nil {
		t.Error(err)
	}
}

// startForwarder runs Outmill's forwarder until the test ends.
func startForwarder(t *testing.T, w *world, brokers []string) {
	t.Helper()
	pub, err := watermillkafka.NewPublisher(wkafka.PublisherConfig{Brokers: brokers, Marshaler: wkafka.DefaultMarshaler{}}, nil)
	require.NoError(t, err)
	fwd, err := forwarder.New(w.store, pub, forwarder.Config{}, nil)
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- fwd.Run(context.Background()) }()
	<-fwd.Running()
	t.Cleanup(func() {
		require.NoError(t, fwd.Close())
		require.NoError(t, <-ended)
		require.NoError(t, pub.Close())
	})
}

func requireForwarded(t *testing.T, w *world) {
	t.Helper()
	require.Eventually(t, func() bool {
		stats, err := w.store.Stats(context.WithoutCancel(t.Context()), 1)
		require.NoError(t, err)
		return len(stats) == 0
	}, patience, tick, "records are left in the outbox")
}

// inKafka returns the ids of a topic's messages, those of one partition in
// their order.
func inKafka(t *testing.T, brokers []string, topic string) []string {
	t.Helper()
	var all []string
	for _, r := range kafkatest.ReadAll(t, brokers, topic) {
		for _, h := range r.Headers {
			if h.Key == wkafka.UUIDHeaderKey {
				all = append(all, string(h.Value))
			}
		}
	}
	return all
}

// oldForwarder is Watermill's own.
type oldForwarder struct {
	fwd   *wforwarder.Forwarder
	pub   message.Publisher
	ended chan error

	mu   sync.Mutex
	sent map[string]bool
	done bool
}

func startOldForwarder(t *testing.T, w *world, brokers []string) *oldForwarder {
	t.Helper()
	pub, err := wkafka.NewPublisher(wkafka.PublisherConfig{Brokers: brokers, Marshaler: wkafka.DefaultMarshaler{}}, nil)
	require.NoError(t, err)
	sub, err := wsql.NewSubscriber(w.db, wsql.SubscriberConfig{
		SchemaAdapter: wsql.DefaultPostgreSQLSchema{SubscribeBatchSize: 5}, OffsetsAdapter: wsql.DefaultPostgreSQLOffsetsAdapter{},
		PollInterval: tick,
	}, nil)
	require.NoError(t, err)
	o := &oldForwarder{pub: pub, sent: map[string]bool{}, ended: make(chan error, 1)}
	o.fwd, err = wforwarder.NewForwarder(sub, o, nil, wforwarder.Config{})
	require.NoError(t, err)
	go func() { o.ended <- o.fwd.Run(context.Background()) }()
	<-o.fwd.Running()
	t.Cleanup(func() { o.stop(t) })
	return o
}

func (o *oldForwarder) stop(t *testing.T) {
	t.Helper()
	if o.done {
		return
	}
	o.done = true
	require.NoError(t, o.fwd.Close())
	require.NoError(t, <-o.ended)
	// The forwarder leaves its publisher open.
	require.NoError(t, o.pub.Close())
}

func (o *oldForwarder) Publish(topic string, messages ...*message.Message) error {
	o.mu.Lock()
	for _, m := range messages {
		o.sent[m.UUID] = true
	}
	o.mu.Unlock()
	return o.pub.Publish(topic, messages...)
}

func (o *oldForwarder) Close() error { return nil }

func (o *oldForwarder) published(id string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sent[id]
}

func (o *oldForwarder) waitFor(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		return len(o.sent) >= n
	}, patience, tick, "the old forwarder forwards nothing")
}
