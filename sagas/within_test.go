package sagas_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/inbox"
	"github.com/outmill/outmill/sagas"
	"github.com/outmill/outmill/subscriber"
)

// within adds the middleware for handlers in transactions that the application begins.
func (s *shop) within(t *testing.T, more ...message.HandlerMiddleware) {
	t.Helper()
	within, err := inbox.Within(s.Store, inbox.Begin(
		func(ctx context.Context) (*sql.Tx, error) { return s.DB().BeginTx(ctx, nil) },
		func(ctx context.Context, tx *sql.Tx) context.Context { return s.WithTx(ctx, tx) }))
	require.NoError(t, err)
	s.router.AddMiddleware(append([]message.HandlerMiddleware{subscriber.KeepError, within}, more...)...)
}

func TestSaga_Within(t *testing.T) {
	t.Parallel()
	for name, outer := range map[string]bool{"of the saga": false, "of the router": true} {
		t.Run("in a transaction of the application the inbox "+name+" finds a duplicate", func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			var boxes []message.HandlerMiddleware
			if outer {
				box, err := inbox.New(s.Store, inbox.Config{Consumer: "orders"})
				require.NoError(t, err)
				boxes = append(boxes, box.Middleware)
			}
			s.within(t, boxes...)
			s.run(t, sagas.Config{Inbox: &inbox.Config{}}, sagas.StartedBy("placed", ofOrder, func(c *sagas.Context[order], m event) error {
				if delivery, _ := outmill.Delivery(c); delivery.Attempt == 1 {
					require.NoError(t, c.PublishValue("invoices", m))
					return errors.New("broken")
				}
				if err := placed(c, m); err != nil {
					return err
				}
				c.Complete()
				return c.PublishValue("invoices", m)
			}))
			for range 2 {
				require.NoError(t, s.pub.Publish("placed", message.NewMessage("m1", []byte(`{"Order":"o1"}`))))
			}
			s.settled(t, outmill.StatusProcessed, 2)
			sent, err := s.List(t.Context(), outmill.ListQuery{Topic: "invoices", Content: true})
			require.NoError(t, err)
			require.Len(t, sent, 1)
		})
	}
}
