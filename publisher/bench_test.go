package publisher_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
)

func messages(n int) []*message.Message {
	list := make([]*message.Message, n)
	for i := range list {
		m := message.NewMessage(fmt.Sprintf("m%d", i), make([]byte, 200))
		m.Metadata.Set("region", "north")
		outmill.SetCorrelationID(m, "c1")
		list[i] = m
	}
	return list
}

// Benchmark_Publish measures one call to a SQLite file in a transaction of its own,
// including the commit.
func Benchmark_Publish(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprintf("%d messages", n), func(b *testing.B) {
			pub := newPublisher(b, newNamed(b, sqlite.Config{}))
			batch := messages(n)
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, pub.Publish(orders, batch...))
			}
		})
	}
}

// Benchmark_Publish_alone measures the cost of the publisher itself, without a store.
func Benchmark_Publish_alone(b *testing.B) {
	store := newNamed(b, sqlite.Config{})
	pub, err := publisher.New(withoutAppend{store}, publisher.Config{}, nil)
	require.NoError(b, err)
	tx := begin(b, store)
	ctx := store.WithTx(b.Context(), tx)
	for _, n := range []int{1, 100} {
		for name, p := range map[string]message.Publisher{"bare": pub, "in a view's transaction": pub.WithContext(ctx)} {
			b.Run(fmt.Sprintf("%d messages %s", n, name), func(b *testing.B) {
				batch := messages(n)
				b.ReportAllocs()
				for b.Loop() {
					require.NoError(b, p.Publish(orders, batch...))
				}
			})
		}
	}
}

type withoutAppend struct{ *sqlite.Store }

func (withoutAppend) Append(context.Context, ...*outmill.Record) error { return nil }
