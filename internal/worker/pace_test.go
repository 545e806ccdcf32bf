package worker

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// handle records n handlings in a pace, one after the other, each of the same duration.
func (p *pace) handle(now time.Time, n int, took time.Duration) time.Time {
	for range n {
		p.started(now, now)
		now = now.Add(took)
		p.ended(now, p.startedAt)
	}
	return now
}

func TestPace(t *testing.T) {
	t.Parallel()

	t.Run("the number of records claimed ahead follows the pace of the handlers", func(t *testing.T) {
		t.Parallel()
		const most = 100
		now := time.Now()

		t.Run("nothing is known before the first has ended", func(t *testing.T) {
			t.Parallel()
			var p pace
			p.started(now, now)
			require.Zero(t, p.prefetch(now, 10, 1, most))
		})
		t.Run("a full batch while they are fast", func(t *testing.T) {
			t.Parallel()
			var p pace
			now := p.handle(now, 1, 20*time.Microsecond)
			require.Equal(t, most, p.prefetch(now, 1, 0, most))
		})
		t.Run("none while each takes longer than a record may wait", func(t *testing.T) {
			t.Parallel()
			var p pace
			now := p.handle(now, 1, 500*time.Millisecond)
			require.Zero(t, p.prefetch(now, 1, 0, most))
			require.Equal(t, 2, p.prefetch(now, 10, 0, most), "ten hands start twenty in a second")
		})
		t.Run("less as soon as all hands are busy for longer than usual", func(t *testing.T) {
			t.Parallel()
			var p pace
			now := p.handle(now, 1, time.Millisecond)
			p.started(now, now)
			require.Equal(t, most, p.prefetch(now, 1, 1, most))
			require.Zero(t, p.prefetch(now.Add(time.Second), 1, 1, most))
		})
		t.Run("less where the reader takes its time between messages", func(t *testing.T) {
			t.Parallel()
			var p pace
			p.started(now, now)
			p.ended(now, now)
			for range 50 {
				offered := now
				now = now.Add(50 * time.Millisecond)
				p.started(now, offered)
				p.ended(now, now)
			}
			require.Equal(t, 2, p.prefetch(now, 100, 0, most))
		})
		t.Run("again when the slow ones are over", func(t *testing.T) {
			t.Parallel()
			var p pace
			now := p.handle(now, 10, time.Second)
			now = p.handle(now, 100, time.Microsecond)
			require.Equal(t, most, p.prefetch(now, 1, 0, most))
		})
		t.Run("nothing after a second without any", func(t *testing.T) {
			t.Parallel()
			var p pace
			now := p.handle(now, 1, time.Microsecond)
			require.Zero(t, p.prefetch(now.Add(2*time.Second), 1, 0, most))
		})
	})
}
