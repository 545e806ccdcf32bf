package inbox_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/gochannel"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/inbox"
	"github.com/outmill/outmill/internal/testenv"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/subscriber"
)

func TestMain(m *testing.M) {
	testenv.ManyAtATime()
	goleak.VerifyTestMain(m)
}

const (
	patience = 5 * time.Minute
	orders   = "orders"
	invoices = "invoices"
)

// shop is a store with a table of the application and a publisher.
type shop struct {
	t     *testing.T
	store *sqlite.Store
	pub   *publisher.Publisher
}

func newShop(t *testing.T) *shop {
	t.Helper()
	store, err := sqlite.Open(t.Context(), "file:"+filepath.Join(t.TempDir(), "shop.db")+"?_pragma=synchronous(OFF)", sqlite.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	require.NoError(t, store.Ensure(t.Context()))
	_, err = store.DB().ExecContext(t.Context(), `CREATE TABLE effects (uuid TEXT NOT NULL)`)
	require.NoError(t, err)
	pub, err := publisher.New(store, publisher.Config{}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, pub.Close()) })
	return &shop{t, store, pub}
}

func (s *shop) box(change func(*inbox.Config)) *inbox.Inbox {
	s.t.Helper()
	cfg := inbox.Config{Consumer: "billing", Publisher: s.pub}
	if change != nil {
		change(&cfg)
	}
	box, err := inbox.New(s.store, cfg)
	require.NoError(s.t, err)
	return box
}

// effect is the work of a handler: a row in the transaction of its message.
func (s *shop) effect(msg *message.Message) error {
	tx, ok := s.store.Tx(msg.Context())
	if !ok {
		return errors.New("the handler has no transaction")
	}
	_, err := tx.ExecContext(msg.Context(), `INSERT INTO effects (uuid) VALUES (?)`, msg.UUID)
	return err
}

func (s *shop) effects() []string {
	s.t.Helper()
	rows, err := s.store.DB().QueryContext(s.t.Context(), `SELECT uuid FROM effects ORDER BY rowid`)
	require.NoError(s.t, err)
	defer func() { _ = rows.Close() }()
	list := []string{}
	for rows.Next() {
		var uuid string
		require.NoError(s.t, rows.Scan(&uuid))
		list = append(list, uuid)
	}
	require.NoError(s.t, rows.Err())
	return list
}

func (s *shop) appended(topic string) []*outmill.Record {
	s.t.Helper()
	list, err := s.store.List(s.t.Context(), outmill.ListQuery{Topic: topic, Content: true})
	require.NoError(s.t, err)
	return list
}

func order(uuid string) *message.Message {
	return message.NewMessage(uuid, message.Payload("{}"))
}

// handle calls the handler in the way of a router.
func handle(box *inbox.Inbox, msg *message.Message, h message.HandlerFunc) error {
	_, err := box.Middleware(h)(msg)
	return err
}

func (s *shop) quietly(msg *message.Message) ([]*message.Message, error) { return nil, s.effect(msg) }

func TestMiddleware(t *testing.T) {
	t.Parallel()
	t.Run("handles a message of any subscriber once", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		var duplicates atomic.Int32
		box := s.box(func(c *inbox.Config) { c.OnDuplicate = func(*message.Message) { duplicates.Add(1) } })
		for _, uuid := range []string{"m1", "m2", "m1", "m1"} {
			require.NoError(t, handle(box, order(uuid), s.quietly))
		}
		require.Equal(t, []string{"m1", "m2"}, s.effects())
		require.EqualValues(t, 2, duplicates.Load())
	})
	t.Run("handles a message once for each consumer", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		other := s.box(func(c *inbox.Config) { c.Consumer = "Billing" })
		for _, box := range []*inbox.Inbox{s.box(nil), other, s.box(nil), other} {
			require.NoError(t, handle(box, order("m1"), s.quietly))
		}
		require.Equal(t, []string{"m1", "m1"}, s.effects())
	})
	t.Run("rolls everything back if the handler fails, and handles the message when it is delivered again", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		box := s.box(nil)
		boom := errors.New("boom")
		require.ErrorIs(t, handle(box, order("m1"), func(msg *message.Message) ([]*message.Message, error) {
			require.NoError(t, s.effect(msg))
			require.NoError(t, s.pub.WithContext(msg.Context()).Publish(invoices, order("never")))
			return []*message.Message{order("never")}, boom
		}), boom)
		require.Empty(t, s.effects())
		require.Empty(t, s.appended(invoices))
		require.NoError(t, handle(box, order("m1"), s.quietly))
		require.Equal(t, []string{"m1"}, s.effects())
	})
	t.Run("rolls everything back if the handler panics, and panics with the same value", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		box := s.box(nil)
		require.PanicsWithValue(t, "boom", func() {
			_ = handle(box, order("m1"), func(msg *message.Message) ([]*message.Message, error) {
				require.NoError(t, s.effect(msg))
				panic("boom")
			})
		})
		require.Empty(t, s.effects())
		require.NoError(t, handle(box, order("m1"), s.quietly))
		require.Equal(t, []string{"m1"}, s.effects())
	})
	t.Run("restores the context of the message after the handler", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		msg := order("m1")
		before := msg.Context()
		require.NoError(t, handle(s.box(nil), msg, s.quietly))
		require.Equal(t, before, msg.Context())
	})
	t.Run("returns a permanent error if the message has no key, or an invalid one", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		box := s.box(func(c *inbox.Config) { c.Key = inbox.ByMetadata("order_id") })
		err := handle(box, order("m1"), s.quietly)
		require.True(t, outmill.IsPermanent(err))
		require.ErrorContains(t, err, `"order_id"`)
		msg := order("m1")
		msg.Metadata.Set("order_id", " blank ")
		err = handle(box, msg, s.quietly)
		require.True(t, outmill.IsPermanent(err))
		require.ErrorIs(t, err, outmill.ErrInvalidRecord)
		require.True(t, outmill.IsPermanent(handle(s.box(nil), order(""), s.quietly)))
		require.Empty(t, s.effects())
	})
	t.Run("identifies messages by Config.Key", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		box := s.box(func(c *inbox.Config) { c.Key = inbox.ByMetadata("order_id") })
		for uuid, id := range map[string]string{"m1": "7", "m2": "7", "m3": "8"} {
			msg := order(uuid)
			msg.Metadata.Set("order_id", id)
			require.NoError(t, handle(box, msg, s.quietly))
		}
		require.Len(t, s.effects(), 2)
	})
	t.Run("cancels the context of a handler that runs longer than MaxProcessing", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		box := s.box(func(c *inbox.Config) { c.MaxProcessing = time.Millisecond })
		err := handle(box, order("m1"), func(msg *message.Message) ([]*message.Message, error) {
			<-msg.Context().Done()
			return nil, nil
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
	t.Run("refuses messages that the handler returns if it has no publisher or no topic", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		produce := func(*message.Message) ([]*message.Message, error) { return []*message.Message{order("m2")}, nil }
		require.ErrorContains(t, handle(s.box(func(c *inbox.Config) { c.Publisher = nil }), order("m1"), produce), "Config.Publisher")
		require.ErrorContains(t, handle(s.box(nil), order("m1"), produce), "AddHandler")
	})
}

// run starts a router, which runs until the test ends.
func run(t *testing.T, router *message.Router) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- router.Run(context.Background()) }()
	<-router.Running()
	t.Cleanup(func() {
		require.NoError(t, router.Close())
		require.NoError(t, <-ended)
	})
}

func newRouter(t *testing.T) *message.Router {
	t.Helper()
	router, err := message.NewRouter(message.RouterConfig{CloseTimeout: patience}, nil)
	require.NoError(t, err)
	return router
}

func (s *shop) subscriber() *subscriber.Subscriber {
	s.t.Helper()
	sub, err := subscriber.New(s.store, subscriber.Config{
		PollInterval: 10 * time.Millisecond,
		Retry:        outmill.RetryPolicy{MaxAttempts: 3, InitialInterval: time.Millisecond, MaxInterval: time.Millisecond},
	}, nil)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, sub.Close()) })
	return sub
}

func TestRouter(t *testing.T) {
	t.Parallel()
	t.Run("a message of the same store is acked after the commit, and its note has its record", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		router := newRouter(t)
		committed := make(chan struct{})
		release := make(chan struct{})
		router.AddMiddleware(subscriber.KeepError, func(h message.HandlerFunc) message.HandlerFunc {
			return func(msg *message.Message) ([]*message.Message, error) {
				produced, err := h(msg)
				close(committed)
				<-release
				return produced, err
			}
		}, s.box(nil).Middleware)
		router.AddConsumerHandler("billing", orders, s.subscriber(), func(msg *message.Message) error { return s.effect(msg) })
		require.NoError(t, s.pub.Publish(orders, order("m1")))
		run(t, router)
		<-committed
		left := s.appended(orders)
		require.Len(t, left, 1, "nobody has acked the message yet")
		require.Equal(t, []string{"m1"}, s.effects())
		var noted string
		require.NoError(t, s.store.DB().QueryRowContext(t.Context(), "SELECT value FROM outmill_entries WHERE kind = 'note'").Scan(&noted))
		require.Equal(t, left[0].ID.String(), noted)
		close(release)
		require.Eventually(t, func() bool { return len(s.appended(orders)) == 0 }, patience, time.Millisecond)
	})
	t.Run("publishes the messages that the handler returns in the transaction, with inherited ids", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		router := newRouter(t)
		router.AddMiddleware(subscriber.KeepError, s.box(nil).Middleware, inbox.Inherit)
		attempts := 0
		handled := make(chan struct{})
		router.AddHandler("billing", orders, s.subscriber(), invoices, s.pub, func(msg *message.Message) ([]*message.Message, error) {
			if err := s.effect(msg); err != nil {
				return nil, err
			}
			if attempts++; attempts == 1 {
				return []*message.Message{order("never")}, errors.New("boom")
			}
			close(handled)
			return []*message.Message{order("invoice")}, nil
		})
		msg := order("m1")
		outmill.SetCorrelationID(msg, "c1")
		outmill.SetTenantID(msg, "acme")
		outmill.SetTrace(msg, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "")
		require.NoError(t, s.pub.Publish(orders, msg))
		run(t, router)
		<-handled
		require.Eventually(t, func() bool { return len(s.appended(invoices)) == 1 }, patience, time.Millisecond)
		invoice := s.appended(invoices)[0]
		require.Equal(t, []string{"invoice", "c1", "m1", "acme"},
			[]string{invoice.MessageID, invoice.CorrelationID, invoice.CausationID, invoice.TenantID})
		require.Equal(t, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", invoice.TraceParent)
		require.Equal(t, []string{"m1"}, s.effects())
		require.Eventually(t, func() bool { return len(s.appended(orders)) == 0 }, patience, time.Millisecond)
		require.Len(t, s.appended(invoices), 1)
	})
	t.Run("a message of another subscriber is acked after the commit, and its duplicate is not handled", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		channel := gochannel.NewGoChannel(gochannel.Config{OutputChannelBuffer: 10}, watermill.NopLogger{})
		router := newRouter(t)
		router.AddMiddleware(s.box(nil).Middleware)
		router.AddConsumerHandler("billing", orders, channel, func(msg *message.Message) error { return s.effect(msg) })
		run(t, router)
		for range 3 {
			require.NoError(t, channel.Publish(orders, order("m1")))
		}
		require.NoError(t, channel.Publish(orders, order("last")))
		require.Eventually(t, func() bool { return len(s.effects()) == 2 }, patience, time.Millisecond)
		require.ElementsMatch(t, []string{"m1", "last"}, s.effects())
	})
}

func TestNew(t *testing.T) {
	t.Parallel()
	t.Run("refuses invalid settings, and names them", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		for want, cfg := range map[string]inbox.Config{
			"Consumer":      {},
			"Retention":     {Consumer: "c", Retention: -1},
			"MaxProcessing": {Consumer: "c", MaxProcessing: -1},
		} {
			_, err := inbox.New(s.store, cfg)
			require.ErrorIs(t, err, outmill.ErrInvalidConfig)
			require.ErrorContains(t, err, "inbox.Config."+want)
		}
		_, err := inbox.New(limited{s.store}, inbox.Config{Consumer: "c", MaxProcessing: time.Minute})
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		require.ErrorContains(t, err, "the database ends transactions after 1m0s")
		_, err = inbox.New(limited{s.store}, inbox.Config{Consumer: "c"})
		require.NoError(t, err)
	})
	t.Run("refuses a nil store, and one without an inbox", func(t *testing.T) {
		t.Parallel()
		for _, store := range []outmill.Writer{nil, (*sqlite.Store)(nil), writer{}} {
			_, err := inbox.New(store, inbox.Config{Consumer: "c"})
			require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		}
	})
}

// limited is a store whose transactions end after a minute.
type limited struct{ *sqlite.Store }

func (limited) TxLimit() time.Duration { return time.Minute }

type writer struct{ outmill.Writer }
