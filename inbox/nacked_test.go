package inbox_test

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
)

func TestMiddleware_Nacked(t *testing.T) {
	t.Parallel()
	t.Run("a message that the handler nacks is not noted, whatever the handler returns", func(t *testing.T) {
		t.Parallel()
		s := newShop(t)
		box := s.box(nil)
		err := handle(box, order("m1"), func(msg *message.Message) ([]*message.Message, error) {
			msg.Nack()
			return nil, s.effect(msg)
		})
		require.ErrorContains(t, err, "nacked")
		require.Empty(t, s.effects())
		require.NoError(t, handle(box, order("m1"), s.quietly))
		require.Equal(t, []string{"m1"}, s.effects())
	})
}
