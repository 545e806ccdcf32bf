package worker

import (
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/stretchr/testify/require"
)

// TestSource_Late makes the two ends of a call meet in both orders, which a test with a real call cannot.
func TestSource_Late(t *testing.T) {
	t.Parallel()

	sick := func(ends func(w *Worker, call *timedCall)) bool {
		w := New(Config{Queue: noStore{}, Logger: watermill.NopLogger{}})
		call := &timedCall{source: w.source("sick")}
		ends(w, call)
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.passOver() != nil && w.passOver()("sick")
	}

	t.Run("a member whose call takes long is left out until the call has ended", func(t *testing.T) {
		t.Parallel()
		require.True(t, sick(func(w *Worker, call *timedCall) { w.isLate(call) }))
		require.False(t, sick(func(w *Worker, call *timedCall) { w.isLate(call); w.hasEnded(call) }))
	})

	t.Run("a member is claimed from again after a call that ended just when it became late", func(t *testing.T) {
		t.Parallel()
		require.False(t, sick(func(w *Worker, call *timedCall) { w.hasEnded(call); w.isLate(call) }))
	})
}
