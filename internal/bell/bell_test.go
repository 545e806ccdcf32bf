package bell_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/bell"
)

func told(heard <-chan struct{}) bool {
	select {
	case <-heard:
		return true
	default:
		return false
	}
}

func Test_every_listener_hears_a_ring_once(t *testing.T) {
	t.Parallel()
	var b bell.Bell
	one, two := b.Listen(t.Context()), b.Listen(t.Context())
	require.True(t, b.Heard())
	b.Ring()
	b.Ring()
	require.True(t, told(one))
	require.False(t, told(one))
	require.True(t, told(two))
}

func Test_a_listener_whose_context_has_ended_hears_nothing(t *testing.T) {
	t.Parallel()
	var b bell.Bell
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	heard := b.Listen(ctx)
	require.False(t, b.Heard())
	b.Ring()
	require.False(t, told(heard))
}

func Test_a_closed_bell_is_quiet(t *testing.T) {
	t.Parallel()
	var b bell.Bell
	before := b.Listen(t.Context())
	b.Close()
	after := b.Listen(t.Context())
	b.Ring()
	require.False(t, b.Heard())
	require.False(t, told(before))
	require.False(t, told(after))
}
