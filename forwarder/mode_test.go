package forwarder_test

import (
	"context"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/storekit"
)

// hiding is a decorator like most: it keeps the inner publisher in an unexported field.
type hiding struct {
	pub   message.Publisher
	calls int
}

func (h *hiding) Publish(topic string, messages ...*message.Message) error {
	h.calls++
	return h.pub.Publish(topic, messages...)
}

func (h *hiding) Close() error { return h.pub.Close() }

// unwrapping is a decorator that returns its inner publisher.
type unwrapping struct{ hiding }

func (u *unwrapping) Unwrap() message.Publisher { return u.pub }

// batching is a decorator with its own PublishBatch.
type batching struct {
	unwrapping
	batches int
}

func (b *batching) PublishBatch(ctx context.Context, batch []storekit.Outgoing) error {
	b.batches++
	return b.pub.(storekit.BatchPublisher).PublishBatch(ctx, batch)
}

// ring unwraps to itself.
type ring struct{ message.Publisher }

func (r *ring) Unwrap() message.Publisher { return r }

// broken panics in Unwrap.
type broken struct{ message.Publisher }

func (broken) Unwrap() message.Publisher { panic("no idea") }

// forwardTen forwards ten messages, and returns the number of batches at the destination
// and the log.
func forwardTen(t *testing.T, d *batchDestination, pub message.Publisher) (batches int, l *journal.Journal) {
	t.Helper()
	store := newStore(t)
	register(t, store)
	add(t, store, recs("orders", "a", 10)...)
	l = journal.New()
	startLogged(t, store, pub, quick(), l)
	d.waitFor(t, 10)
	requireEmpty(t, store)
	require.Equal(t, namesOf("orders", "a", 10), d.ids())
	return len(d.allBatches()), l
}

func TestForwarder_Mode(t *testing.T) {
	t.Parallel()

	t.Run("a publisher of batches is said to get batches", func(t *testing.T) {
		t.Parallel()
		d := newBatchDestination(t)
		batches, l := forwardTen(t, d, d)
		require.Positive(t, batches)
		require.Len(t, l.Find("INFO The forwarder publishes in batches", "batchDestination"), 1)
		require.Empty(t, l.Find("Warning"))
	})

	t.Run("a plain publisher is said to get one message at a time", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		add(t, store, rec("orders", "a", "m"))
		d := newDestination(t)
		l := journal.New()
		startLogged(t, store, d, quick(), l)
		d.waitFor(t, 1)
		require.Len(t, l.Find("INFO The forwarder publishes one message at a time", "destination", "lanes:64"), 1)
		require.Empty(t, l.Find("Warning"))
	})

	t.Run("batches go past decorators that unwrap and the log names them", func(t *testing.T) {
		t.Parallel()
		d := newBatchDestination(t)
		inner := &unwrapping{hiding{pub: d}}
		outer := &unwrapping{hiding{pub: inner}}
		batches, l := forwardTen(t, d, outer)
		require.Positive(t, batches)
		require.Zero(t, outer.calls+inner.calls)
		require.Len(t, l.Find("INFO The forwarder publishes in batches", "passed_by:[*forwarder_test.unwrapping *forwarder_test.unwrapping]",
			"batches_through:*forwarder_test.batchDestination"), 1)
		require.Empty(t, l.Find("Warning"))
	})

	t.Run("a decorator that publishes batches itself gets them", func(t *testing.T) {
		t.Parallel()
		d := newBatchDestination(t)
		decorator := &batching{unwrapping: unwrapping{hiding{pub: d}}}
		batches, _ := forwardTen(t, d, decorator)
		require.Equal(t, batches, decorator.batches)
	})

	t.Run("a decorator that hides a publisher of batches is warned of with the remedy", func(t *testing.T) {
		t.Parallel()
		for name, decorate := range map[string]func(pub message.Publisher) message.Publisher{
			"by itself":                   func(pub message.Publisher) message.Publisher { return &hiding{pub: pub} },
			"under another one":           func(pub message.Publisher) message.Publisher { return &hiding{pub: &hiding{pub: pub}} },
			"under one that unwraps":      func(pub message.Publisher) message.Publisher { return &unwrapping{hiding{pub: &hiding{pub: pub}}} },
			"in an embedded publisher":    func(pub message.Publisher) message.Publisher { return struct{ message.Publisher }{pub} },
			"which cannot be asked":       func(pub message.Publisher) message.Publisher { return broken{pub} },
			"whose Unwrap goes in a ring": func(pub message.Publisher) message.Publisher { return &ring{pub} },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				d := newBatchDestination(t)
				batches, l := forwardTen(t, d, decorate(d))
				require.Zero(t, batches)
				require.Len(t, l.Find("one message at a time"), 1)
				warnings := l.Find("Warning", "hides", "PublishBatch", "Unwrap() message.Publisher", "batchDestination")
				require.Len(t, warnings, 1)
			})
		}
	})

	t.Run("a ring of decorators without a publisher of batches is not followed for ever", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		add(t, store, rec("orders", "a", "m"))
		d := newDestination(t)
		one, two := &hiding{pub: d}, &hiding{pub: d}
		l := journal.New()
		turning := &turning{destination: d, next: one}
		one.pub = turning
		startLogged(t, store, two, quick(), l)
		startLogged(t, store, turning, quick(), l)
		d.waitFor(t, 1)
		require.Empty(t, l.Find("Warning", "hides"))
	})

	t.Run("the mode is logged once", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		register(t, store)
		d := newBatchDestination(t)
		l := journal.New()
		fwd := startLogged(t, store, &hiding{pub: d}, quick(), l)
		_, err := fwd.Once(t.Context())
		require.NoError(t, err)
		require.Len(t, l.Find("Warning", "hides"), 1)
	})
}

// turning publishes to its destination, and is part of a cycle of publishers.
type turning struct {
	*destination
	next message.Publisher
}
