package mongo_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/testenv/mongotest"
)

func TestStore_Provider(t *testing.T) {
	t.Parallel()

	t.Run("an unknown parameter is refused", func(t *testing.T) {
		t.Parallel()
		_, err := outmill.Open(t.Context(), mongotest.Server(t)+"&retian=24h", nil)
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		require.ErrorContains(t, err, "retian")
	})
}
