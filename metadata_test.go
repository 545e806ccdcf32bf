package outmill_test

import (
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

func TestOccurredAt(t *testing.T) {
	t.Parallel()
	t.Run("returns what SetOccurredAt was given, in UTC", func(t *testing.T) {
		t.Parallel()
		occurred := time.Date(2026, 3, 4, 5, 6, 7, 89, time.FixedZone("", 3600))
		msg := message.NewMessage("m", nil)
		outmill.SetOccurredAt(msg, occurred)
		require.Equal(t, "2026-03-04T04:06:07.000000089Z", msg.Metadata.Get(outmill.MetadataOccurredAt))
		got, ok := outmill.OccurredAt(msg)
		require.True(t, ok)
		require.Equal(t, occurred.UTC(), got)
	})
	t.Run("reports false where there is no such time", func(t *testing.T) {
		t.Parallel()
		for _, text := range []string{"", "yesterday", "2026-03-04"} {
			msg := &message.Message{Metadata: message.Metadata{outmill.MetadataOccurredAt: text}}
			got, ok := outmill.OccurredAt(msg)
			require.False(t, ok, text)
			require.Zero(t, got)
		}
		_, ok := outmill.OccurredAt(&message.Message{})
		require.False(t, ok)
	})
}
