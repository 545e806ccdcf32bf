package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/inbox"
	"github.com/outmill/outmill/subscriber"
)

type transact = func(ctx context.Context, fn func(ctx context.Context) error) error

// begin is a user's own way to transactions.
func (s *shop) begin() transact {
	return inbox.Begin(
		func(ctx context.Context) (*sql.Tx, error) { return s.store.DB().BeginTx(ctx, nil) },
		func(ctx context.Context, tx *sql.Tx) context.Context { return s.store.WithTx(ctx, tx) })
}

func (s *shop) within(transact transact) message.HandlerMiddleware {
	s.t.Helper()
	middleware, err := inbox.Within(s.store, transact)
	require.NoError(s.t, err)
	return middleware
}

// handleWithin calls the handler in an inbox in a transaction of transact.
func (s *shop) handleWithin(transact transact, msg *message.Message, h message.HandlerFunc) error {
	s.t.Helper()
	_, err := s.within(transact)(s.box(nil).Middleware(h))(msg)
	return err
}

func TestWithin(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")

	t.Run("a duplicate is handled once, in the transaction of the user", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		var begun []*sql.Tx
		counted := inbox.Begin(
			func(ctx context.Context) (*sql.Tx, error) { return s.store.DB().BeginTx(ctx, nil) },
			func(ctx context.Context, tx *sql.Tx) context.Context {
				begun = append(begun, tx)
				return s.store.WithTx(ctx, tx)
			})
		for range 2 {
			require.NoError(t, s.handleWithin(counted, order("m1"), func(msg *message.Message) ([]*message.Message, error) {
				tx, err := s.store.TxOf(msg.Context())
				require.NoError(t, err)
				require.Same(t, begun[0], tx)
				return nil, s.effect(msg)
			}))
		}
		require.Len(t, begun, 2)
		require.Equal(t, []string{"m1"}, s.effects())
	})
	t.Run("a handler that fails is rolled back with its note and its messages, and its error is returned as it is", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		require.Equal(t, boom, s.handleWithin(s.begin(), order("m1"), func(msg *message.Message) ([]*message.Message, error) {
			require.NoError(t, s.effect(msg))
			require.NoError(t, s.pub.WithContext(msg.Context()).Publish(invoices, order("never")))
			return nil, boom
		}))
		require.Empty(t, s.effects())
		require.Empty(t, s.appended(invoices))
		require.NoError(t, s.handleWithin(s.begin(), order("m1"), s.quietly))
		require.Equal(t, []string{"m1"}, s.effects())
	})
	t.Run("a handler that panics or nacks is rolled back", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		require.PanicsWithValue(t, "boom", func() {
			_ = s.handleWithin(s.begin(), order("m1"), func(msg *message.Message) ([]*message.Message, error) {
				require.NoError(t, s.effect(msg))
				panic("boom")
			})
		})
		// Without an inbox too.
		_, err := s.within(s.begin())(func(msg *message.Message) ([]*message.Message, error) {
			msg.Nack()
			return nil, s.effect(msg)
		})(order("m1"))
		require.ErrorContains(t, err, "nacked")
		require.Empty(t, s.effects())
		require.NoError(t, s.handleWithin(s.begin(), order("m1"), s.quietly))
		require.Equal(t, []string{"m1"}, s.effects())
	})
	t.Run("a commit that fails leaves nothing, and the message is handled when it comes again", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		failing := inbox.Begin(
			func(ctx context.Context) (refusing, error) {
				tx, err := s.store.DB().BeginTx(ctx, nil)
				return refusing{tx}, err
			},
			func(ctx context.Context, tx refusing) context.Context { return s.store.WithTx(ctx, tx) })
		msg := order("m1")
		before := msg.Context()
		produced, err := s.within(failing)(func(msg *message.Message) ([]*message.Message, error) {
			return []*message.Message{order("never")}, s.effect(msg)
		})(msg)
		require.ErrorIs(t, err, errRefused)
		require.ErrorContains(t, err, "commit")
		require.Empty(t, produced)
		require.Equal(t, before, msg.Context())
		require.Empty(t, s.effects())
		require.NoError(t, s.handleWithin(s.begin(), order("m1"), s.quietly))
		require.Equal(t, []string{"m1"}, s.effects())
	})
	t.Run("a commit whose answer is lost is found by its note", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		begin := s.begin()
		silent := func(ctx context.Context, fn func(ctx context.Context) error) error {
			return errors.Join(begin(ctx, fn), boom)
		}
		require.ErrorIs(t, s.handleWithin(silent, order("m1"), s.quietly), boom)
		require.NoError(t, s.handleWithin(begin, order("m1"), s.quietly))
		require.Equal(t, []string{"m1"}, s.effects())
	})
	t.Run("each run of the transaction gets the message as it came", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		begin := s.begin()
		again := func(ctx context.Context, fn func(ctx context.Context) error) error {
			if err := begin(ctx, fn); !errors.Is(err, boom) {
				return err
			}
			return begin(ctx, fn)
		}
		runs := 0
		require.NoError(t, s.handleWithin(again, order("m1"), func(msg *message.Message) ([]*message.Message, error) {
			require.Equal(t, "{}", string(msg.Payload))
			require.Empty(t, msg.Metadata)
			msg.Payload = nil
			msg.Metadata.Set("seen", "yes")
			if runs++; runs == 1 {
				return nil, boom
			}
			return nil, s.effect(msg)
		}))
		require.Equal(t, 2, runs)
		require.Equal(t, []string{"m1"}, s.effects())
	})
	t.Run("uses the transaction that the context of the message carries already", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		inner := s.within(func(context.Context, func(context.Context) error) error {
			t.Error("a second transaction was begun")
			return nil
		})
		_, err := s.within(s.begin())(inner(s.box(nil).Middleware(s.quietly)))(order("m1"))
		require.NoError(t, err)
		require.Equal(t, []string{"m1"}, s.effects())
	})
	t.Run("an inbox in another one of the store has no effect", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		nested := s.box(nil).Middleware(s.box(nil).Middleware(s.quietly))
		for range 2 {
			_, err := nested(order("m1"))
			require.NoError(t, err)
		}
		require.Equal(t, []string{"m1"}, s.effects())
	})
}

// TestWithin_Misuse has functions that do not what Within asks for.
func TestWithin_Misuse(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	mistakes := map[string]struct {
		transact func(s *shop) transact
		handler  func(s *shop) message.HandlerFunc
		says     string
		is       error
	}{
		"fn gets no transaction": {func(*shop) transact {
			return func(ctx context.Context, fn func(ctx context.Context) error) error { return fn(ctx) }
		}, nil, "WithTx", outmill.ErrNoTx},
		"fn gets something that is no transaction": {func(s *shop) transact {
			return func(ctx context.Context, fn func(ctx context.Context) error) error {
				return fn(s.store.WithTx(ctx, s.store.DB()))
			}
		}, nil, "is a pool", outmill.ErrInvalidTx},
		"fn gets a context of somewhere else": {func(s *shop) transact {
			begin := s.begin()
			return func(_ context.Context, fn func(ctx context.Context) error) error {
				return begin(context.Background(), fn)
			}
		}, nil, "derive", nil},
		"fn is not called": {func(*shop) transact {
			return func(context.Context, func(context.Context) error) error { return nil }
		}, nil, "has not called fn", nil},
		"no transaction begins": {func(*shop) transact {
			return func(context.Context, func(context.Context) error) error { return boom }
		}, nil, "no transaction has begun", boom},
		"the error of fn is swallowed": {func(s *shop) transact {
			begin := s.begin()
			return func(ctx context.Context, fn func(ctx context.Context) error) error {
				_ = begin(ctx, fn)
				return nil
			}
		}, func(*shop) message.HandlerFunc {
			return func(*message.Message) ([]*message.Message, error) { return nil, boom }
		}, "return the error of fn", boom},
	}
	for name, mistake := range mistakes {
		t.Run("it is an error if "+name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			handler := s.quietly
			if mistake.handler != nil {
				handler = mistake.handler(s)
			}
			err := s.handleWithin(mistake.transact(s), order("m1"), handler)
			require.ErrorContains(t, err, mistake.says)
			if mistake.is != nil {
				require.ErrorIs(t, err, mistake.is)
			}
			require.Empty(t, s.effects())
		})
	}
	t.Run("a nil store or function is refused", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		_, err := inbox.Within(nil, s.begin())
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		_, err = inbox.Within(s.store, nil)
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
	})
}

var errRefused = errors.New("the connection was lost during the commit")

// refusing is a transaction whose commit fails.
type refusing struct{ *sql.Tx }

func (refusing) Commit() error { return errRefused }

func TestWithin_Router(t *testing.T) {
	t.Parallel()
	t.Run("a message of the same store is acked after the commit of the outer transaction", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		begin := s.begin()
		var beforeCommit, afterCommit []string
		returned := make(chan struct{})
		router := newRouter(t)
		router.AddMiddleware(subscriber.KeepError, s.within(func(ctx context.Context, fn func(ctx context.Context) error) error {
			defer close(returned)
			err := begin(ctx, func(ctx context.Context) error {
				err := fn(ctx)
				// Another connection sees what was committed.
				beforeCommit = s.uuids(orders)
				return err
			})
			afterCommit = s.uuids(orders)
			return err
		}), s.box(nil).Middleware)
		router.AddHandler("billing", orders, s.subscriber(), invoices, s.pub, func(msg *message.Message) ([]*message.Message, error) {
			return []*message.Message{order("invoice")}, s.effect(msg)
		})
		require.NoError(t, s.pub.Publish(orders, order("m1")))
		run(t, router)
		<-returned
		require.Equal(t, []string{"m1"}, beforeCommit)
		require.Equal(t, []string{"m1"}, afterCommit)
		require.Equal(t, []string{"m1"}, s.effects())
		require.Equal(t, []string{"invoice"}, s.uuids(invoices))
		require.Eventually(t, func() bool { return len(s.appended(orders)) == 0 }, patience, time.Millisecond)
	})
	// failsOnce runs a handler whose first commit fails with err, and returns the deliveries that it gets.
	failsOnce := func(t *testing.T, s *shop, err error) <-chan outmill.DeliveryInfo {
		t.Helper()
		begins := 0
		handled := make(chan outmill.DeliveryInfo, 10)
		router := newRouter(t)
		begin := s.begin()
		router.AddMiddleware(subscriber.KeepError, s.within(func(ctx context.Context, fn func(ctx context.Context) error) error {
			if begins++; begins > 1 {
				return begin(ctx, fn)
			}
			return begin(ctx, func(ctx context.Context) error { return errors.Join(fn(ctx), err) })
		}), s.box(nil).Middleware)
		router.AddConsumerHandler("billing", orders, s.subscriber(), func(msg *message.Message) error {
			delivery, _ := outmill.Delivery(msg.Context())
			handled <- delivery
			return s.effect(msg)
		})
		require.NoError(t, s.pub.Publish(orders, order("m1")))
		run(t, router)
		return handled
	}
	t.Run("a commit that the database refuses is a failed attempt, and the message is handled once", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		_, refused := s.store.DB().ExecContext(t.Context(), "INSERT INTO outmill_meta SELECT * FROM outmill_meta")
		require.Error(t, refused)
		handled := failsOnce(t, s, refused)
		require.Empty(t, (<-handled).LastError)
		again := <-handled
		require.Contains(t, again.LastError, refused.Error())
		require.Equal(t, 2, again.Attempt)
		require.Eventually(t, func() bool { return len(s.appended(orders)) == 0 }, patience, time.Millisecond)
		require.Equal(t, []string{"m1"}, s.effects())
	})
	t.Run("a commit of which nobody knows whether it has succeeded is no attempt, and the message comes again", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		handled := failsOnce(t, s, errRefused)
		<-handled
		again := <-handled
		require.Equal(t, 1, again.Attempt)
		require.Equal(t, 2, again.Claims)
		require.Empty(t, again.LastError)
		require.Eventually(t, func() bool { return len(s.appended(orders)) == 0 }, patience, time.Millisecond)
		require.Equal(t, []string{"m1"}, s.effects())
	})
	t.Run("a snooze in it rolls back and uses up no attempt", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		router := newRouter(t)
		attempts := make(chan int, 10)
		router.AddMiddleware(subscriber.KeepError, s.within(s.begin()), s.box(nil).Middleware)
		router.AddConsumerHandler("billing", orders, s.subscriber(), func(msg *message.Message) error {
			delivery, _ := outmill.Delivery(msg.Context())
			attempts <- delivery.Attempt
			if err := s.effect(msg); err != nil || delivery.Claims > 1 {
				return err
			}
			return outmill.Snooze(0)
		})
		require.NoError(t, s.pub.Publish(orders, order("m1")))
		run(t, router)
		require.Equal(t, []int{1, 1}, []int{<-attempts, <-attempts})
		require.Eventually(t, func() bool { return len(s.appended(orders)) == 0 }, patience, time.Millisecond)
		require.Equal(t, []string{"m1"}, s.effects())
	})
	t.Run("a message of another subscriber is acked after the outer commit", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		channel := gochannel.NewGoChannel(gochannel.Config{BlockPublishUntilSubscriberAck: true}, watermill.NopLogger{})
		begin := s.begin()
		acked := make(chan bool, 10)
		var current *message.Message
		router := newRouter(t)
		router.AddMiddleware(func(h message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				current = msg
				return h(msg)
			}
		}, s.within(func(ctx context.Context, fn func(ctx context.Context) error) error {
			err := begin(ctx, fn)
			select {
			case <-current.Acked():
				acked <- true
			default:
				acked <- false
			}
			return err
		}), s.box(nil).Middleware)
		router.AddConsumerHandler("billing", orders, channel, func(msg *message.Message) error { return s.effect(msg) })
		run(t, router)
		for _, uuid := range []string{"m1", "m1", "m2"} {
			require.NoError(t, channel.Publish(orders, order(uuid)))
		}
		require.Equal(t, []bool{false, false, false}, []bool{<-acked, <-acked, <-acked})
		require.ElementsMatch(t, []string{"m1", "m2"}, s.effects())
	})
}

// uuids are the message ids of the records that are left on the topic.
func (s *shop) uuids(topic string) []string {
	s.t.Helper()
	var list []string
	for _, r := range s.appended(topic) {
		list = append(list, r.MessageID)
	}
	return list
}
