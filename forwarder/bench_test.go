package forwarder_test

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/internal/testenv/kafkatest"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/storekit"
)

// Every iteration drains 50,000 waiting messages of 200 bytes, of 1,000 keys,
// from a SQLite file, in batches of a size, or 0 for the default, which grows:
//
//	go test ./forwarder -run '^$' -bench Drain -benchtime 3x
const (
	benchMessages = 50_000
	benchPayload  = 200
	benchKeys     = 1_000
)

// discard accepts every message and drops it.
type discard struct{}

func (discard) Publish(string, ...*message.Message) error               { return nil }
func (discard) PublishBatch(context.Context, []storekit.Outgoing) error { return nil }
func (discard) Close() error                                            { return nil }

// oneByOne hides that a publisher takes batches.
type oneByOne struct{ message.Publisher }

func BenchmarkDrain(b *testing.B) {
	for _, batch := range []int{0, 100, 500, 1000} {
		cfg := forwarder.Config{BatchSize: batch}
		unordered := cfg
		unordered.Unordered = true
		run := func(name string, cfg forwarder.Config, connect func(b *testing.B) (message.Publisher, string)) {
			b.Run(fmt.Sprintf("%s/batches of %d", name, batch), func(b *testing.B) { drain(b, cfg, connect) })
		}
		run("nowhere", cfg, func(*testing.B) (message.Publisher, string) { return discard{}, "orders" })
		run("nowhere, unordered", unordered, func(*testing.B) (message.Publisher, string) { return discard{}, "orders" })
		run("nowhere, one by one", cfg, func(*testing.B) (message.Publisher, string) { return oneByOne{discard{}}, "orders" })
		run("fake Kafka", cfg, func(b *testing.B) (message.Publisher, string) {
			return toKafka(b, kafkatest.FakeWithoutAutoTopics(b).Addrs, ours)
		})
		run("real Kafka", cfg, func(b *testing.B) (message.Publisher, string) {
			return toKafka(b, kafkatest.Real(b), ours)
		})
		run("real Kafka by watermill-kafka in 64 lanes", cfg, func(b *testing.B) (message.Publisher, string) {
			return toKafka(b, kafkatest.Real(b), watermills)
		})
	}
}

func toKafka(b *testing.B, brokers []string, connect func(tb testing.TB, brokers []string) message.Publisher) (message.Publisher, string) {
	return connect(b, brokers), kafkatest.CreateTopic(b, brokers, 4)
}

func drain(b *testing.B, cfg forwarder.Config, connect func(b *testing.B) (message.Publisher, string)) {
	pub, topic := connect(b)
	store := openStore(b, filepath.Join(b.TempDir(), "outbox.db"), sqlite.Config{})
	register(b, store)
	fwd := newForwarder(b, store, pub, cfg)
	var used time.Duration
	for b.Loop() {
		b.StopTimer()
		fill(b, store, topic)
		b.StartTimer()
		began := processorTime(b)
		n, err := fwd.Once(b.Context())
		used += processorTime(b) - began
		require.NoError(b, err)
		require.Equal(b, benchMessages, n)
	}
	b.ReportMetric(float64(used.Nanoseconds())/float64(b.N)/benchMessages, "cpu-ns/msg")
	b.ReportMetric(float64(b.N)*benchMessages/b.Elapsed().Seconds(), "msg/s")
}

// processorTime is that of this process, which other programs disturb less than the time.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func fill(b *testing.B, store outmill.Writer, topic string) {
	payload := make([]byte, benchPayload)
	const atOnce = 1_000
	for i := 0; i < benchMessages; i += atOnce {
		records := make([]*outmill.Record, atOnce)
		for j := range records {
			records[j] = &outmill.Record{Topic: topic, Key: fmt.Sprint("key ", (i+j)%benchKeys), Payload: payload}
		}
		add(b, store, records...)
	}
}

// Each iteration drains 10,000 waiting messages with metadata by records and as many by messages, so that what else the
// machine does costs both alike:
//
//	go test ./forwarder -run '^$' -bench Raw -benchtime 20x
func BenchmarkRaw(b *testing.B) {
	const messages = 10_000
	brokers := kafkatest.Real(b)
	pub, topic := toKafka(b, brokers, ours)
	store := openStore(b, filepath.Join(b.TempDir(), "outbox.db"), sqlite.Config{})
	register(b, store)
	sides := map[string]message.Publisher{"raw": pub, "messages": byMessages{pub.(storekit.BatchPublisher)}}
	used := map[string]time.Duration{}
	for b.Loop() {
		for name, pub := range sides {
			b.StopTimer()
			for range messages / 1000 {
				records := recs(topic, "k", 1000)
				for i, r := range records {
					r.Key, r.Payload = fmt.Sprint("key ", i), make([]byte, benchPayload)
					r.Metadata = map[string]string{"content_type": "application/json", "source": "shop", outmill.MetadataContract: "orders.placed"}
					r.CorrelationID, r.TraceParent = r.MessageID, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
				}
				add(b, store, records...)
			}
			fwd, err := forwarder.New(store, pub, forwarder.Config{}, nil)
			require.NoError(b, err)
			b.StartTimer()
			began := processorTime(b)
			n, err := fwd.Once(b.Context())
			used[name] += processorTime(b) - began
			require.NoError(b, err)
			require.Equal(b, messages, n)
		}
	}
	for name, spent := range used {
		b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N)/messages, name+"-cpu-ns/msg")
	}
}
