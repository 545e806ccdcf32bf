package storekit_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func TestForBroker(t *testing.T) {
	t.Parallel()
	reserved := func(name string) bool { return strings.HasPrefix(name, "Nats-") }

	t.Run("no reserved name is sent, and RestoreHeaders returns what was given", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			name := rapid.StringMatching("(outmill-escaped-){0,2}(Nats-)?[ab]{0,2}")
			msg := message.NewMessage("m1", []byte("payload"))
			msg.Metadata = rapid.MapOf(name, rapid.String()).Draw(t, "metadata")
			before := maps.Clone(msg.Metadata)
			sent := storekit.ForBroker(msg, reserved)
			require.Equal(t, before, msg.Metadata, "the message stays as it is")
			for name := range sent.Metadata {
				require.False(t, reserved(name), name)
			}
			got := sent.Copy()
			storekit.RestoreHeaders(got)
			require.True(t, got.Equals(msg))
		})
	})

	t.Run("the message itself is sent if there is nothing to change", func(t *testing.T) {
		t.Parallel()
		msg := withMetadata("a", "b")
		require.Same(t, msg, storekit.ForBroker(msg, reserved))
		require.Nil(t, storekit.ForBroker(nil, reserved))
	})

	t.Run("instructions are not sent, and the context is kept", func(t *testing.T) {
		t.Parallel()
		msg := withMetadata("a", "b")
		outmill.SetDelay(msg, time.Hour)
		msg.SetContext(t.Context())
		sent := storekit.ForBroker(msg, reserved)
		require.Equal(t, message.Metadata{"a": "b"}, sent.Metadata)
		require.Equal(t, t.Context(), sent.Context())
	})
}
