package subscriber_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/journal"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/subscriber"
)

// next returns the next message and fails the test if none comes.
func next(t *testing.T, messages <-chan *message.Message) *message.Message {
	t.Helper()
	select {
	case msg, open := <-messages:
		require.True(t, open, "the channel was closed")
		return msg
	case <-time.After(patience):
		require.FailNow(t, "no message came")
		return nil
	}
}

func subscribe(t *testing.T, sub *subscriber.Subscriber) <-chan *message.Message {
	t.Helper()
	messages, err := sub.Subscribe(context.Background(), topic)
	require.NoError(t, err)
	return messages
}

func TestSubscriber_Promises(t *testing.T) {
	t.Parallel()

	t.Run("after one ack of three and a Close the other two still come", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		cfg := quick()
		cfg.CloseTimeout = 10 * time.Millisecond
		first := s.subscriber(t, cfg)
		messages := subscribe(t, first)
		published := []*message.Message{newOrder(), newOrder(), newOrder()}
		s.publish(t, published...)
		acked := next(t, messages)
		require.True(t, acked.Ack())
		// The handler of the second message does not return; the third message waits.
		running := next(t, messages)
		err := first.Close()
		require.ErrorIs(t, err, outmill.ErrHandlersRunning)
		require.ErrorContains(t, err, "running: 1 did")
		require.ErrorIs(t, running.Context().Err(), context.Canceled)

		others := subscribe(t, s.subscriber(t, quick()))
		third := next(t, others)
		third.Ack()
		nothing(t, others, "the handler still runs")
		running.Nack()
		second := next(t, others)
		require.Equal(t, running.UUID, second.UUID)
		info, _ := outmill.Delivery(second.Context())
		require.Equal(t, 1, info.Attempt, "a shutdown is not a failure")
		second.Ack()
		got := []string{acked.UUID, second.UUID, third.UUID}
		require.ElementsMatch(t, []string{published[0].UUID, published[1].UUID, published[2].UUID}, got)
		require.Eventually(t, func() bool { return s.count(t, outmill.StatusProcessed) == 3 }, patience, 5*time.Millisecond)
	})

	t.Run("after one ack of three and the deadline of the others they still come", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		cfg := quick()
		// The first message is acked in time also on a busy machine.
		cfg.Lease, cfg.MaxProcessing, cfg.CloseTimeout = 4*time.Second, 2*time.Second, 10*time.Millisecond
		messages := subscribe(t, s.subscriber(t, cfg))
		s.publish(t, newOrder(), newOrder(), newOrder())
		next(t, messages).Ack()
		stuck := []*message.Message{next(t, messages), next(t, messages)}

		others := subscribe(t, s.subscriber(t, quick()))
		var got []string
		for range 2 {
			msg := next(t, others)
			msg.Ack()
			got = append(got, msg.UUID)
		}
		require.ElementsMatch(t, []string{stuck[0].UUID, stuck[1].UUID}, got)
		for _, msg := range stuck {
			<-msg.Context().Done()
			msg.Nack()
		}
	})

	t.Run("an acked delayed message never comes again", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		sub := s.subscriber(t, quick())
		messages := subscribe(t, sub)
		msg := newOrder()
		delay.Message(msg, delay.For(20*time.Millisecond))
		s.publish(t, msg)
		next(t, messages).Ack()
		s.only(t, topic, outmill.StatusProcessed)
		// The worker counts the message a moment after the store has it as processed.
		_, err := sub.Once(t.Context())
		require.NoError(t, err)
		for range 3 {
			n, err := sub.Once(t.Context())
			require.NoError(t, err)
			require.Zero(t, n)
		}
		require.Equal(t, 1, s.only(t, topic, outmill.StatusProcessed).Claims)
		require.NoError(t, sub.Close())
		_, open := <-messages
		require.False(t, open)
		n, err := s.subscriber(t, quick()).Once(t.Context())
		require.NoError(t, err)
		require.Zero(t, n)
	})

	t.Run("acked messages are not delivered again after a Close", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		first := s.subscriber(t, quick())
		messages := subscribe(t, first)
		const total = 200
		for range total {
			s.publish(t, newOrder())
		}
		seen := map[string]int{}
		for range total / 2 {
			msg := next(t, messages)
			seen[msg.UUID]++
			msg.Ack()
		}
		require.NoError(t, first.Close())
		others := subscribe(t, s.subscriber(t, quick()))
		for range total / 2 {
			msg := next(t, others)
			seen[msg.UUID]++
			msg.Ack()
		}
		require.Len(t, seen, total, "each came once, the acked ones not again")
	})

	t.Run("a nack after the subscription has ended counts no attempt", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		cfg := quick()
		cfg.CloseTimeout = 10 * time.Millisecond
		ctx, cancel := context.WithCancel(t.Context())
		messages, err := s.subscriber(t, cfg).Subscribe(ctx, topic)
		require.NoError(t, err)
		s.publish(t, newOrder())
		msg := next(t, messages)
		cancel()
		<-msg.Context().Done()
		msg.Nack()
		rec := s.only(t, topic, outmill.StatusPending)
		require.Zero(t, rec.Attempts)
		_, open := <-messages
		require.False(t, open)
	})

	t.Run("the lease is extended while a handler runs (OBX-059)", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		cfg := quick()
		// A busy machine must not lose it.
		cfg.Lease = 5 * time.Second
		sub := s.subscriber(t, cfg)
		messages := subscribe(t, sub)
		s.publish(t, newOrder())
		msg := next(t, messages)
		info, ok := outmill.Delivery(msg.Context())
		require.True(t, ok)
		begin := info.LeaseUntil()
		require.Eventually(t, func() bool { return info.LeaseUntil().Sub(begin) > cfg.Lease }, patience, 5*time.Millisecond)
		rec, err := s.Get(t.Context(), info.ID)
		require.NoError(t, err)
		require.Equal(t, 1, rec.Claims, "nobody else got it")
		require.NoError(t, msg.Context().Err())
		msg.Ack()
		require.Zero(t, s.only(t, topic, outmill.StatusProcessed).Expiries)
	})

	t.Run("OnDead is called after the last attempt (OBX-064)", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		cfg := quick()
		told := make(chan *outmill.Record, 1)
		cfg.OnDead = func(rec *outmill.Record, reason string) {
			require.Contains(t, reason, errBroken.Error())
			told <- rec
		}
		s.route(t, cfg, func(*message.Message) error { return errBroken }, subscriber.KeepError)
		msg := newOrder()
		s.publish(t, msg)
		select {
		case rec := <-told:
			require.Equal(t, msg.UUID, rec.MessageID)
		case <-time.After(patience):
			require.FailNow(t, "OnDead was not called")
		}
		require.Equal(t, outmill.StatusDead, s.only(t, topic, outmill.StatusDead).Status)
	})

	t.Run("a negative MaxAttempts never gives up", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		cfg := quick()
		cfg.Retry.MaxAttempts = -1
		messages := subscribe(t, s.subscriber(t, cfg))
		s.publish(t, newOrder())
		for attempt := 1; attempt <= 25; attempt++ {
			msg := next(t, messages)
			info, _ := outmill.Delivery(msg.Context())
			require.Equal(t, attempt, info.Attempt)
			msg.Nack()
		}
		next(t, messages).Ack()
		require.Equal(t, 25, s.only(t, topic, outmill.StatusProcessed).Attempts)
	})

	t.Run("no more than MaxInFlight messages are with handlers at a time (OBX-060)", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		cfg := quick()
		cfg.MaxInFlight = 3
		messages := subscribe(t, s.subscriber(t, cfg))
		for range 10 {
			s.publish(t, newOrder())
		}
		held := []*message.Message{next(t, messages), next(t, messages), next(t, messages)}
		select {
		case <-messages:
			require.FailNow(t, "a fourth message came while three were with handlers")
		case <-time.After(100 * time.Millisecond):
		}
		for n := range 7 {
			held[n].Ack()
			held = append(held, next(t, messages))
		}
		for _, msg := range held {
			msg.Ack()
		}
	})

	t.Run("no more bytes are claimed than MaxInFlightBytes and one record", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		cfg := quick()
		cfg.MaxInFlightBytes = 10_000
		for range 10 {
			s.publish(t, message.NewMessage(watermill.NewUUID(), make([]byte, 6_000)))
		}
		messages := subscribe(t, s.subscriber(t, cfg))
		first := next(t, messages)
		require.LessOrEqual(t, s.count(t, outmill.StatusLeased), 2)
		first.Ack()
		for range 9 {
			msg := next(t, messages)
			require.LessOrEqual(t, s.count(t, outmill.StatusLeased), 2)
			msg.Ack()
		}
	})

	t.Run("two groups both get every message and readers of one share them", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		mail, ship := quick(), quick()
		mail.Group, ship.Group = "mail", "ship"
		var channels []<-chan *message.Message
		for _, cfg := range []subscriber.Config{mail, ship, ship} {
			channels = append(channels, subscribe(t, s.subscriber(t, cfg)))
		}
		const total = 50
		var want []string
		for range total {
			msg := newOrder()
			want = append(want, msg.UUID)
			s.publish(t, msg)
		}
		var mu sync.Mutex
		var readers sync.WaitGroup
		got := map[string][]string{}
		for i, group := range []string{"mail", "ship", "ship"} {
			readers.Go(func() {
				for {
					select {
					case msg, open := <-channels[i]:
						if !open {
							return
						}
						mu.Lock()
						got[group] = append(got[group], msg.UUID)
						mu.Unlock()
						msg.Ack()
					case <-t.Context().Done():
						return
					}
				}
			})
		}
		require.Eventually(t, func() bool { return s.count(t, outmill.StatusProcessed) == 2*total }, patience, 5*time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		require.ElementsMatch(t, want, got["mail"])
		require.ElementsMatch(t, want, got["ship"])
		t.Cleanup(readers.Wait)
	})

	// It has two subscribers, handlers
	// that fail now and then, and many keys.
	t.Run("the messages of a key are handled in order by several subscribers under failures", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		cfg := quick()
		cfg.Order = outmill.OrderKey
		cfg.Retry.MaxAttempts = -1
		const keys, each = 7, 30
		var mu sync.Mutex
		handled := map[string][]string{}
		failed := map[string]bool{}
		handle := func(msg *message.Message) error {
			mu.Lock()
			defer mu.Unlock()
			info, _ := outmill.Delivery(msg.Context())
			if n := len(handled[info.Key]); n%5 == 3 && !failed[msg.UUID] {
				failed[msg.UUID] = true
				return errBroken
			}
			handled[info.Key] = append(handled[info.Key], string(msg.Payload))
			return nil
		}
		s.route(t, cfg, handle, subscriber.KeepError)
		s.route(t, cfg, handle, subscriber.KeepError)
		var want []string
		for n := range each {
			want = append(want, fmt.Sprintf("%03d", n))
			var batch []*message.Message
			for key := range keys {
				msg := message.NewMessage(watermill.NewUUID(), []byte(want[n]))
				outmill.SetKey(msg, fmt.Sprintf("key-%d", key))
				batch = append(batch, msg)
			}
			s.publish(t, batch...)
		}
		require.Eventually(t, func() bool { return s.count(t, outmill.StatusProcessed) == keys*each }, 2*patience, 10*time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		require.NotEmpty(t, failed)
		for key, got := range handled {
			require.Equal(t, want, got, key)
		}
	})

	t.Run("strict mode hands out one message of the topic at a time", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		cfg := quick()
		cfg.Order = outmill.OrderTopic
		one, two := subscribe(t, s.subscriber(t, cfg)), subscribe(t, s.subscriber(t, cfg))
		const total = 30
		var want []string
		for range total {
			msg := newOrder()
			want = append(want, msg.UUID)
			s.publish(t, msg)
		}
		var got []string
		for range total {
			var msg *message.Message
			select {
			case msg = <-one:
			case msg = <-two:
			case <-time.After(patience):
				require.FailNow(t, "no message came")
			}
			got = append(got, msg.UUID)
			select {
			case <-one:
				require.FailNow(t, "two messages at a time")
			case <-two:
				require.FailNow(t, "two messages at a time")
			default:
			}
			msg.Ack()
		}
		require.Equal(t, want, got)
	})

	t.Run("a parked key waits for the operator while other keys continue", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		cfg := quick()
		cfg.Order, cfg.KeyPolicy = outmill.OrderKey, outmill.KeyPark
		var mu sync.Mutex
		var handled []string
		broken := true
		s.route(t, cfg, func(msg *message.Message) error {
			mu.Lock()
			defer mu.Unlock()
			if broken && string(msg.Payload) == "a1" {
				return outmill.Permanent(errBroken)
			}
			handled = append(handled, string(msg.Payload))
			return nil
		}, subscriber.KeepError)
		for _, name := range []string{"a1", "a2", "b1", "a3", "b2"} {
			msg := message.NewMessage(watermill.NewUUID(), []byte(name))
			outmill.SetKey(msg, name[:1])
			s.publish(t, msg)
		}
		require.Eventually(t, func() bool {
			return s.count(t, outmill.StatusDead) == 3 && s.count(t, outmill.StatusProcessed) == 2
		}, patience, 5*time.Millisecond)
		mu.Lock()
		require.Equal(t, []string{"b1", "b2"}, handled)
		broken = false
		mu.Unlock()
		dead, err := s.List(t.Context(), outmill.ListQuery{Content: true, Status: outmill.StatusDead})
		require.NoError(t, err)
		n, err := s.Requeue(t.Context(), dead[0].ID)
		require.NoError(t, err)
		require.Equal(t, 3, n)
		require.Eventually(t, func() bool { return s.count(t, outmill.StatusProcessed) == 5 }, patience, 5*time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, []string{"b1", "b2", "a1", "a2", "a3"}, handled)
	})

	t.Run("Once delivers the due messages and returns", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		cfg := quick()
		cfg.PollInterval = time.Hour
		sub := s.subscriber(t, cfg)
		messages := subscribe(t, sub)
		var handling sync.WaitGroup
		handling.Go(func() {
			for msg := range messages {
				msg.Ack()
			}
		})
		for range 250 {
			s.publish(t, newOrder())
		}
		later := newOrder()
		outmill.SetDelay(later, time.Hour)
		s.publish(t, later)
		total := 0
		require.Eventually(t, func() bool {
			n, err := sub.Once(t.Context())
			require.NoError(t, err)
			total += n
			return s.count(t, outmill.StatusProcessed) == 250
		}, patience, time.Millisecond)
		require.LessOrEqual(t, total, 250)
		require.Equal(t, 1, s.count(t, outmill.StatusPending))
		require.NoError(t, sub.Close())
		handling.Wait()
		_, err := sub.Once(t.Context())
		require.ErrorIs(t, err, outmill.ErrClosed)
	})

	t.Run("it warns of topics with due records that no group reads (OBX-055)", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		logger := journal.New()
		cfg := quick()
		cfg.UpkeepInterval = 10 * time.Millisecond
		sub, err := subscriber.New(s, cfg, logger)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, sub.Close()) })
		subscribe(t, sub)
		require.NoError(t, s.pub.Publish("nobody.reads.this", newOrder()))
		require.Eventually(t, func() bool {
			return logger.Count("ERROR", "no group has registered", "nobody.reads.this") > 0
		}, patience, 10*time.Millisecond)
	})

	t.Run("bad input is an error with a remedy", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		_, err := subscriber.New(nil, subscriber.Config{}, nil)
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		_, err = subscriber.New((*sqlite.Store)(nil), subscriber.Config{}, nil)
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		_, err = subscriber.New(s, subscriber.Config{BatchSize: -1, Lease: -1, Group: " x"}, nil)
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		require.ErrorContains(t, err, "BatchSize")
		require.ErrorContains(t, err, "Lease")
		require.ErrorContains(t, err, "group")

		sub := s.subscriber(t, quick())
		for _, bad := range []string{"", " x", "x ", "a\x00b", "\xff", strings.Repeat("x", 256)} {
			_, err := sub.Subscribe(t.Context(), bad)
			require.ErrorIs(t, err, outmill.ErrInvalidRecord, "topic %q", bad)
			require.ErrorIs(t, sub.SubscribeInitialize(bad), outmill.ErrInvalidRecord)
		}
		require.NoError(t, sub.Close())
		require.NoError(t, sub.Close())
		_, err = sub.Subscribe(t.Context(), topic)
		require.ErrorIs(t, err, outmill.ErrClosed)
	})

	t.Run("a missing schema is an error that names the remedy", func(t *testing.T) {
		t.Parallel()
		store, err := sqlite.Open(t.Context(), t.TempDir()+"/empty.db", sqlite.Config{}, nil)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close()) })
		sub, err := subscriber.New(store, quick(), nil)
		require.NoError(t, err)
		_, err = sub.Subscribe(t.Context(), topic)
		require.ErrorIs(t, err, outmill.ErrSchemaMissing)
		require.ErrorContains(t, err, "Ensure")
		require.NoError(t, sub.Close())
	})

	t.Run("an unavailable database is logged and tried again", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		db, err := sql.Open("sqlite", "file:"+t.TempDir()+"/gone.db")
		require.NoError(t, err)
		store, err := sqlite.New(db, sqlite.Config{}, nil)
		require.NoError(t, err)
		require.NoError(t, store.Ensure(t.Context()))
		logger := journal.New()
		cfg := quick()
		cfg.MaxErrorBackoff = 5 * time.Millisecond
		sub, err := subscriber.New(store, cfg, logger)
		require.NoError(t, err)
		subscribe(t, sub)
		require.NoError(t, db.Close())
		require.Eventually(t, func() bool {
			return logger.Count("ERROR", "Claim failed") > 3
		}, patience, 5*time.Millisecond)
		require.NoError(t, sub.Close())
		require.NoError(t, store.Close())
		require.NotNil(t, s)
	})

	t.Run("metadata that identify a message return on delivery and instructions do not", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		messages := subscribe(t, s.subscriber(t, quick()))
		msg := newOrder()
		msg.Metadata.Set("colour", "green")
		outmill.SetKey(msg, "customer-1")
		outmill.SetCorrelationID(msg, "c")
		outmill.SetCausationID(msg, "b")
		outmill.SetTenantID(msg, "t")
		outmill.SetTrace(msg, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "vendor=x")
		identified := msg.Copy().Metadata
		outmill.SetDedupKey(msg, "once")
		outmill.SetTimeToLive(msg, time.Hour)
		outmill.SetDelay(msg, time.Millisecond)
		s.publish(t, msg)
		got := next(t, messages)
		require.Equal(t, identified, got.Metadata)
		require.Equal(t, msg.UUID, got.UUID)
		info, ok := outmill.Delivery(got.Context())
		require.True(t, ok)
		require.Equal(t, "once", info.DedupKey)
		require.Equal(t, s.Name(), info.Store)
		require.Equal(t, 1, info.Attempt)
		require.False(t, info.ExpiresAt.IsZero())
		got.Ack()
	})

	t.Run("payloads are never logged (OBX-125)", func(t *testing.T) {
		t.Parallel()
		s := openShop(t)
		logger := journal.New()
		sub, err := subscriber.New(s, quick(), logger)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, sub.Close()) })
		pub, err := publisher.New(s, publisher.Config{}, logger)
		require.NoError(t, err)
		messages := subscribe(t, sub)
		msg := message.NewMessage(watermill.NewUUID(), []byte("top secret payload"))
		msg.Metadata.Set("token", "top secret metadata")
		require.NoError(t, pub.Publish(topic, msg))
		next(t, messages).Nack()
		next(t, messages).Ack()
		s.only(t, topic, outmill.StatusProcessed)
		require.NoError(t, sub.Close())
		require.Positive(t, logger.Count("DEBUG", "Message delivered"))
		require.Zero(t, logger.Count("top secret"))
	})
}
