package subscriber_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/subscriber"
)

// waiting is the number of messages at the start of a burndown.
const waiting = 20_000

// Benchmark_Burndown handles all messages that wait in a SQLite file, including the commits
// on disk: once with a router and an empty handler, once from the channel alone.
//
//	go test ./subscriber -run '^$' -bench Burndown -benchtime 5x -cpuprofile cpu.out
func Benchmark_Burndown(b *testing.B) {
	for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey} {
		for name, burn := range map[string]func(*testing.B, *subscriber.Subscriber, int){"router": byRouter(func() {}), "channel": byChannel} {
			b.Run(fmt.Sprintf("%s, order %s", name, order), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					b.StopTimer()
					store := stocked(b)
					sub, err := subscriber.New(store, subscriber.Config{Order: order}, nil)
					require.NoError(b, err)
					b.StartTimer()
					burn(b, sub, waiting)
					b.StopTimer()
					require.NoError(b, store.Close())
					b.StartTimer()
				}
				b.ReportMetric(float64(waiting*b.N)/b.Elapsed().Seconds(), "messages/s")
			})
		}
	}
}

// stocked returns a store with the waiting messages, of 200 bytes and 1,000
// keys.
func stocked(b *testing.B) *sqlite.Store {
	b.Helper()
	store, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "outbox.db"), sqlite.Config{}, nil)
	require.NoError(b, err)
	require.NoError(b, store.Ensure(b.Context()))
	require.NoError(b, store.RegisterGroup(b.Context(), outmill.Registration{Topics: outmill.Topics{Include: []string{topic}}}))
	for from := 0; from < waiting; from += 1000 {
		batch := make([]*outmill.Record, 1000)
		for i := range batch {
			batch[i] = &outmill.Record{
				Topic:    topic,
				Key:      fmt.Sprint(i),
				Payload:  make([]byte, 200),
				Metadata: map[string]string{"colour": "green"},
			}
		}
		require.NoError(b, store.Append(b.Context(), batch...))
	}
	return store
}

// byChannel handles n messages from the channel alone.
func byChannel(b *testing.B, sub *subscriber.Subscriber, n int) {
	b.Helper()
	messages, err := sub.Subscribe(context.Background(), topic)
	require.NoError(b, err)
	for range n {
		(<-messages).Ack()
	}
	require.NoError(b, sub.Close())
}

// byRouter handles n messages in a router.
func byRouter(handle func()) func(b *testing.B, sub *subscriber.Subscriber, n int) {
	return func(b *testing.B, sub *subscriber.Subscriber, n int) {
		b.Helper()
		router, err := message.NewRouter(message.RouterConfig{}, nil)
		require.NoError(b, err)
		router.AddMiddleware(subscriber.KeepError)
		var handled atomic.Int64
		done := make(chan struct{})
		router.AddConsumerHandler("handler", topic, sub, func(*message.Message) error {
			handle()
			if handled.Add(1) == int64(n) {
				close(done)
			}
			return nil
		})
		ended := make(chan error, 1)
		go func() { ended <- router.Run(context.Background()) }()
		<-done
		require.NoError(b, router.Close())
		require.NoError(b, <-ended)
	}
}

// Benchmark_Delivery_alone measures the cost of the subscriber itself: the store returns an
// endless number of records and accepts every ack. Its router and its handlers, which work for a
// while, cost as much with every subscriber. Other programs disturb the processor time less than
// the time. To compare with another commit, build its test binary (go test -c), and run the two in turn.
func Benchmark_Delivery_alone(b *testing.B) {
	store, err := sqlite.Open(b.Context(), filepath.Join(b.TempDir(), "outbox.db"), sqlite.Config{}, nil)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, store.Close()) })
	require.NoError(b, store.Ensure(b.Context()))
	for _, order := range []outmill.Order{outmill.OrderNone, outmill.OrderKey, outmill.OrderTopic} {
		for name, consume := range map[string]func(*testing.B, *subscriber.Subscriber, int){
			"channel":            byChannel,
			"router":             byRouter(func() {}),
			"router that sleeps": byRouter(func() { time.Sleep(2 * time.Millisecond) }),
		} {
			b.Run(fmt.Sprintf("%s, order %s", name, order), func(b *testing.B) {
				sub, err := subscriber.New(endless{store}, subscriber.Config{Order: order, BatchSize: 500, MaxInFlight: 2000}, nil)
				require.NoError(b, err)
				b.ReportAllocs()
				began := processorTime(b)
				b.ResetTimer()
				consume(b, sub, b.N)
				b.StopTimer()
				b.ReportMetric(float64((processorTime(b)-began).Nanoseconds())/float64(b.N), "cpu-ns/op")
			})
		}
	}
}

// processorTime is that of this process.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// endless has the name and groups of a store, and makes records at no cost.
type endless struct{ *sqlite.Store }

func (endless) Claim(_ context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	block := make([]outmill.Record, req.Limit)
	records := make([]*outmill.Record, req.Limit)
	for i := range block {
		rec := &block[i]
		rec.ID, rec.MessageID, rec.Topic, rec.Key = outmill.NewWorkItemID(), "message", topic, keys[i%len(keys)]
		rec.Owner, rec.Claims = req.Owner, 1
		records[i] = rec
	}
	return records, nil
}

func (endless) Ack(context.Context, string, []outmill.Lease) error { return nil }
func (endless) Release(context.Context, []outmill.Lease) error     { return nil }

func (endless) Extend(_ context.Context, _ time.Duration, leases []outmill.Lease) ([]outmill.Lease, error) {
	return leases, nil
}

var keys = []string{"a", "b", "c", "d", "e", "f", "g", "h"}
