package monitor

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

// slow is a store whose counts take a time.
type slow struct {
	MeteredStore
	takes time.Duration
	calls int
}

func (s *slow) Name() string { return "slow" }

func (s *slow) Stats(context.Context, int) ([]outmill.TopicStats, error) {
	s.calls++
	time.Sleep(s.takes)
	return nil, nil
}

func TestDepths(t *testing.T) {
	t.Parallel()

	t.Run("a collection each second costs the store one count in 5 seconds, or in 200 times what a long one takes", func(t *testing.T) {
		t.Parallel()
		for takes, want := range map[time.Duration]int{time.Millisecond: 24, 100 * time.Millisecond: 6, time.Second: 2} {
			synctest.Test(t, func(t *testing.T) {
				store := &slow{takes: takes}
				d := &depths{store: store, config: MetricsConfig{}.withDefaults()}
				for began := time.Now(); time.Since(began) < 2*time.Minute; time.Sleep(time.Second) {
					d.ask(t.Context())
				}
				require.InDelta(t, want, store.calls, 2)
			})
		}
	})

	t.Run("a time that the settings give is kept", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			store := &slow{takes: time.Second}
			d := &depths{store: store, config: MetricsConfig{CacheFor: 2 * time.Second}.withDefaults()}
			for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(time.Second) {
				d.ask(t.Context())
			}
			require.Greater(t, store.calls, 10)
		})
	})
}
