package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/inbox"
)

func TestMiddleware_Acked(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	middlewares := map[string]func(t *testing.T, s *shop) message.HandlerMiddleware{
		"an inbox": func(_ *testing.T, s *shop) message.HandlerMiddleware { return s.box(nil).Middleware },
		"Within": func(t *testing.T, s *shop) message.HandlerMiddleware {
			within, err := inbox.Within(s.store, func(ctx context.Context, fn func(ctx context.Context) error) error {
				return s.store.InTx(ctx, func(ctx context.Context, _ *sql.Tx) error { return fn(ctx) })
			})
			require.NoError(t, err)
			return within
		},
	}
	for name, middleware := range middlewares {
		t.Run("an ack of the handler does not reach the subscriber through "+name, func(t *testing.T) {
			t.Parallel()
			s, msg := newShop(t), order("m1")
			before := msg.Context()
			_, err := middleware(t, s)(func(msg *message.Message) ([]*message.Message, error) {
				require.True(t, msg.Ack())
				msg.Metadata.Set("tried", "yes")
				return nil, errors.Join(s.effect(msg), boom)
			})(msg)
			require.ErrorIs(t, err, boom)
			require.True(t, msg.Nack(), "the message is acked")
			require.Empty(t, s.effects())
			require.Equal(t, "yes", msg.Metadata.Get("tried"), "middleware around it sees what the handler has changed")
			require.Equal(t, before, msg.Context())
		})
		t.Run("a message that the handler returns carries no transaction any more after "+name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			var returned *message.Message
			_, err := middleware(t, s)(func(msg *message.Message) ([]*message.Message, error) {
				returned = msg
				return nil, s.effect(msg)
			})(order("m1"))
			require.NoError(t, err)
			_, inTx := s.store.Tx(returned.Context())
			require.False(t, inTx)
			require.Equal(t, []string{"m1"}, s.effects())
		})
	}
}
