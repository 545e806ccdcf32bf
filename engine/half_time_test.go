package engine

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHalfTime(t *testing.T) {
	t.Parallel()
	t.Run("a claim without a deadline has no half time", func(t *testing.T) {
		t.Parallel()
		require.Zero(t, halfTime(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		require.WithinRange(t, halfTime(ctx), time.Now().Add(20*time.Minute), time.Now().Add(31*time.Minute))
	})
}
