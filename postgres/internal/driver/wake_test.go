package driver_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine"
	"github.com/outmill/outmill/internal/testenv/postgrestest"
	"github.com/outmill/outmill/postgres/internal/driver"
	"github.com/outmill/outmill/roles"
)

// process is a store with a pool of its own, as another process has it.
func process(t *testing.T, url string) *engine.Engine {
	t.Helper()
	pool := driver.PoolOf(connect(t, url, 4, nil))
	settings, err := pool.Beside("", "")
	require.NoError(t, err)
	config := driver.Config{Name: "wake", Schema: "outmill", Listen: settings, NotifyInterval: time.Millisecond}
	store := engine.New(driver.New(pool, config), engine.Config{})
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	return store
}

// heard waits for a hint.
func heard(t *testing.T, hints <-chan string, want string) {
	t.Helper()
	late := time.After(time.Minute)
	for {
		select {
		case topic := <-hints:
			if topic == want {
				return
			}
		case <-late:
			require.FailNow(t, "nobody has told the other process", want)
		}
	}
}

func TestWake_Others(t *testing.T) {
	t.Parallel()

	t.Run("what an operator makes claimable wakes the readers of another process", func(t *testing.T) {
		t.Parallel()
		url := postgrestest.Database(t)
		own, other := process(t, url), process(t, url)
		require.NoError(t, own.Ensure(t.Context()))
		hints := make(chan string, 100)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		other.Wake(ctx, func(topic string) { hints <- topic })
		// It listens once it has woken its own readers.
		<-hints
		scope := roles.PauseScope{Topic: "orders"}
		require.NoError(t, own.Pause(t.Context(), scope, "operator", ""))
		ended, err := own.Resume(t.Context(), scope)
		require.NoError(t, err)
		require.True(t, ended)
		heard(t, hints, "")
	})

	t.Run("the last of appends in quick succession is told, too", func(t *testing.T) {
		t.Parallel()
		url := postgrestest.Database(t)
		own, other := process(t, url), process(t, url)
		require.NoError(t, own.Ensure(t.Context()))
		hints := make(chan string, 100)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		other.Wake(ctx, func(topic string) { hints <- topic })
		<-hints
		for _, topic := range []string{"one", "two", "three"} {
			require.NoError(t, own.Append(t.Context(), &outmill.Record{Topic: topic}))
		}
		heard(t, hints, "three")
	})
}
