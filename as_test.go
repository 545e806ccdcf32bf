package outmill_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

type painter interface{ Paint() string }

type painted struct{ *openedStore }

func (painted) Paint() string { return "blue" }

type wrapper struct{ outmill.Store }

type transparent struct{ wrapper }

func (w transparent) Unwrap() outmill.Store { return w.Store }

type endless struct{ *openedStore }

func (w endless) Unwrap() outmill.Store { return w }

func TestAs(t *testing.T) {
	t.Parallel()
	store := painted{&openedStore{}}
	t.Run("finds the role of the store itself and of the store that it wraps", func(t *testing.T) {
		t.Parallel()
		for _, s := range []outmill.Store{store, transparent{wrapper{store}}, transparent{wrapper{transparent{wrapper{store}}}}} {
			role, ok := outmill.As[painter](s)
			require.True(t, ok)
			require.Equal(t, "blue", role.Paint())
		}
	})
	t.Run("does not go past a wrapper without Unwrap", func(t *testing.T) {
		t.Parallel()
		_, ok := outmill.As[painter](wrapper{store})
		require.False(t, ok)
	})
	t.Run("finds no role in nil, or in a wrapper of itself", func(t *testing.T) {
		t.Parallel()
		for _, s := range []any{nil, (*openedStore)(nil), transparent{}, endless{}} {
			_, ok := outmill.As[painter](s)
			require.False(t, ok)
		}
	})
}
