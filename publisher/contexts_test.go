package publisher_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/outmilltest"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
)

type ctxKey struct{}

func cancelled(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

func overdue(t *testing.T, ctx context.Context) context.Context {
	ctx, cancel := context.WithDeadline(ctx, time.Unix(0, 0))
	t.Cleanup(cancel)
	return ctx
}

func TestPublisher_Contexts(t *testing.T) {
	t.Parallel()

	t.Run("A context lends its values and never its end", func(t *testing.T) {
		t.Parallel()

		t.Run("a message whose context has ended is published", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			pub := newPublisher(t, store)
			require.NoError(t, pub.Publish(orders, msg("m1", in(cancelled(t.Context())))))
			require.NoError(t, pub.Publish(orders, msg("m2", in(overdue(t, t.Context())))))
			require.NoError(t, pub.WithContext(cancelled(t.Context())).Publish(orders, msg("m3")))
			requirePublished(t, store, orders, "m1", "m2", "m3")
		})

		t.Run("in the transaction that the ended context carries", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			pub := newPublisher(t, store, requireTx)
			tx := begin(t, store)
			ctx := store.WithTx(t.Context(), tx)
			require.NoError(t, pub.Publish(orders, msg("m1", in(cancelled(ctx)))))
			require.NoError(t, pub.Publish(orders, msg("m2", in(overdue(t, ctx)))))
			require.NoError(t, pub.WithContext(cancelled(ctx)).Publish(orders, msg("m3")))
			require.NoError(t, tx.Rollback())
			outmilltest.RequireNotPublished(t, store, orders)
		})

		t.Run("the store gets the values and the publish timeout", func(t *testing.T) {
			t.Parallel()
			seen := &spying{Writer: outmilltest.NewStore(t)}
			pub := newPublisher(t, seen, func(c *publisher.Config) { c.PublishTimeout = time.Hour })
			before := time.Now()
			ctx := context.WithValue(overdue(t, t.Context()), ctxKey{}, "value")
			require.NoError(t, pub.Publish(orders, msg("m1", in(ctx))))
			require.Equal(t, "value", seen.ctx.Value(ctxKey{}))
			deadline, ok := seen.ctx.Deadline()
			require.True(t, ok)
			require.WithinRange(t, deadline, before.Add(time.Hour), time.Now().Add(time.Hour))
		})

		t.Run("the publish timeout is 30 s by default", func(t *testing.T) {
			t.Parallel()
			seen := &spying{Writer: outmilltest.NewStore(t)}
			before := time.Now()
			require.NoError(t, newPublisher(t, seen).Publish(orders, msg("m1")))
			deadline, ok := seen.ctx.Deadline()
			require.True(t, ok)
			require.WithinRange(t, deadline, before.Add(30*time.Second), time.Now().Add(30*time.Second))
		})
	})

	t.Run("The publish timeout ends a call that waits for the database", func(t *testing.T) {
		t.Parallel()
		store := newNamed(t, sqlite.Config{BusyTimeout: time.Hour})
		pub := newPublisher(t, store, func(c *publisher.Config) { c.PublishTimeout = 50 * time.Millisecond })
		writer := begin(t, store)
		err := pub.Publish(orders, msg("m1"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "publisher.Config.PublishTimeout (50ms)")
		require.NoError(t, writer.Rollback())
		outmilltest.RequireNotPublished(t, store, orders)
		require.NoError(t, newPublisher(t, store).Publish(orders, msg("m2")))
		requirePublished(t, store, orders, "m2")
	})

	t.Run("A view with a context", func(t *testing.T) {
		t.Parallel()

		t.Run("lends its transaction to messages whose own contexts have none", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			pub := newPublisher(t, store, requireTx)
			tx := begin(t, store)
			view := pub.WithContext(store.WithTx(t.Context(), tx))
			own := context.WithValue(t.Context(), ctxKey{}, "value")
			require.NoError(t, view.Publish(orders, msg("m1", in(own)), msg("m2"), msg("m3", in(cancelled(own)))))
			require.NoError(t, tx.Rollback())
			outmilltest.RequireNotPublished(t, store, orders)
		})

		t.Run("gives way to the transaction of a message's own context", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			pub := newPublisher(t, store)
			tx, other := begin(t, store), beginReading(t, store)
			view := pub.WithContext(store.WithTx(t.Context(), other))
			require.NoError(t, view.Publish(orders, msg("m1", in(store.WithTx(t.Context(), tx)))))
			require.NoError(t, tx.Commit())
			requirePublished(t, store, orders, "m1")
		})

		t.Run("is ErrMixedTx where some messages bring another transaction along", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			pub := newPublisher(t, store)
			tx, other := begin(t, store), beginReading(t, store)
			view := pub.WithContext(store.WithTx(t.Context(), tx))
			require.ErrorIs(t, view.Publish(orders, msg("m1"), msg("m2", in(store.WithTx(t.Context(), other)))), outmill.ErrMixedTx)
			require.NoError(t, tx.Commit())
			outmilltest.RequireNotPublished(t, store, orders)
		})

		t.Run("takes messages with its own transaction and without any together", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			pub := newPublisher(t, store)
			tx := begin(t, store)
			ctx := store.WithTx(t.Context(), tx)
			require.NoError(t, pub.WithContext(ctx).Publish(orders, msg("m1"), msg("m2", in(ctx))))
			require.NoError(t, tx.Commit())
			requirePublished(t, store, orders, "m1", "m2")
		})

		t.Run("lends its transaction to a message whose own context has only another store's", func(t *testing.T) {
			t.Parallel()
			store, other := outmilltest.NewStore(t), outmilltest.NewStore(t)
			pub := newPublisher(t, store)
			tx := begin(t, store)
			foreign := other.WithTx(t.Context(), begin(t, other))
			require.NoError(t, pub.WithContext(store.WithTx(t.Context(), tx)).Publish(orders, msg("m1", in(foreign))))
			require.NoError(t, tx.Commit())
			requirePublished(t, store, orders, "m1")
		})

		t.Run("with no context is a shared view", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			pub := newPublisher(t, store)
			require.NoError(t, pub.WithContext(nil).Publish(orders, msg("m1"))) //nolint:staticcheck // a user may pass nil
			requirePublished(t, store, orders, "m1")
		})

		t.Run("serves many transactions one after the other with one publisher", func(t *testing.T) {
			t.Parallel()
			store := outmilltest.NewStore(t)
			pub := newPublisher(t, store, requireTx)
			for _, name := range []string{"m1", "m2", "m3"} {
				require.NoError(t, store.InTx(t.Context(), func(ctx context.Context, _ *sql.Tx) error {
					return pub.WithContext(ctx).Publish(orders, msg(name))
				}))
			}
			requirePublished(t, store, orders, "m1", "m2", "m3")
		})
	})

	t.Run("Publish changes nothing about the message", func(t *testing.T) {
		t.Parallel()
		store := outmilltest.NewStore(t)
		pub := newPublisher(t, store)
		ctx := context.WithValue(t.Context(), ctxKey{}, "value")
		m := msg("m1", in(ctx))
		m.Metadata.Set("region", "north")
		outmill.SetKey(m, "k1")
		outmill.SetDedupKey(m, "d1")
		outmill.SetTimeToLive(m, time.Hour)
		outmill.SetCorrelationID(m, "c1")
		before := m.Copy()
		require.NoError(t, pub.Publish(orders, m))
		require.True(t, before.Equals(m), "got %v", m.Metadata)
		require.Equal(t, ctx, m.Context())
		select {
		case <-m.Acked():
			require.Fail(t, "acked")
		case <-m.Nacked():
			require.Fail(t, "nacked")
		default:
		}

		m.Payload[0], m.Metadata["region"] = 'X', "south"
		outmilltest.RequirePublished(t, store, orders, outmilltest.Payload([]byte("payload of m1")), outmilltest.Metadata("region", "north"))
	})

	t.Run("A message without an id gets one in the store only", func(t *testing.T) {
		t.Parallel()
		store := outmilltest.NewStore(t)
		m := &message.Message{Payload: message.Payload("p")}
		require.NoError(t, newPublisher(t, store).Publish(orders, m))
		require.Empty(t, m.UUID)
		require.Nil(t, m.Metadata)
		found := outmilltest.RequirePublished(t, store, orders, outmilltest.Payload([]byte("p")))
		require.Equal(t, found.ID.String(), found.MessageID)
	})
}

// spying keeps the context of the last Append.
type spying struct {
	outmill.Writer
	ctx context.Context
}

func (s *spying) Append(ctx context.Context, records ...*outmill.Record) error {
	s.ctx = ctx
	return s.Writer.Append(ctx, records...)
}
