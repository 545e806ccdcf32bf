package prometheus_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/janitor"
	"github.com/outmill/outmill/monitor"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/subscriber"
)

// unclaimable refuses claims and maintenance while it is set.
type unclaimable struct {
	*sqlite.Store
	refuses *atomic.Bool
}

func (u unclaimable) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	if u.refuses.Load() {
		return nil, errors.New("refused")
	}
	return u.Store.Claim(ctx, req)
}

func (u unclaimable) Maintain(ctx context.Context) (bool, error) {
	if u.refuses.Load() {
		return false, errors.New("refused")
	}
	return u.Store.Maintain(ctx)
}

func TestFailingCalls(t *testing.T) {
	t.Parallel()
	const name = "outmill_call_failing_age_seconds"

	t.Run("show for how long the calls of subscribers and janitors fail, and 0 for those that work", func(t *testing.T) {
		t.Parallel()
		store := unclaimable{open(t, "main"), &atomic.Bool{}}
		store.refuses.Store(true)
		registry, metrics := start(t, monitor.MetricsConfig{}, store)
		sub, err := subscriber.New(store, subscriber.Config{MaxErrorBackoff: 20 * time.Millisecond}, nil)
		require.NoError(t, err)
		_, err = sub.Subscribe(t.Context(), "orders")
		require.NoError(t, err)
		jan, err := janitor.New(store, janitor.Config{}, nil)
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() { ended <- jan.Run(context.WithoutCancel(t.Context())) }()
		require.NoError(t, metrics.Subscriber("orders", sub))
		require.NoError(t, metrics.Janitor("", jan))
		age := func(component, of, call string) float64 {
			return gauge(t, registry, name, "component", component, "name", of, "call", call)
		}
		require.Eventually(t, func() bool { return age("subscriber", "orders", "claim") > 0 }, time.Minute, 10*time.Millisecond)
		require.Eventually(t, func() bool { return age("janitor", "janitor", "maintain") > 0 }, time.Minute, 10*time.Millisecond)
		before := age("subscriber", "orders", "claim")
		require.Greater(t, age("subscriber", "orders", "claim"), before, "it grows")
		require.Zero(t, age("subscriber", "orders", "settle"))
		require.Zero(t, age("janitor", "janitor", "upkeep"))
		store.refuses.Store(false)
		require.Eventually(t, func() bool { return age("subscriber", "orders", "claim") == 0 }, time.Minute, 10*time.Millisecond)
		require.NoError(t, sub.Close())
		require.NoError(t, jan.Close())
		require.NoError(t, <-ended)
		require.Zero(t, age("janitor", "janitor", "maintain"), "it does not run any more")
	})

	t.Run("no janitor is refused", func(t *testing.T) {
		t.Parallel()
		_, metrics := start(t, monitor.MetricsConfig{})
		require.ErrorIs(t, metrics.Janitor("", nil), outmill.ErrInvalidConfig)
	})
}
