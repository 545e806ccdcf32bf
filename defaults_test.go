package outmill_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/connect"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/subscriber"
)

func TestDefaults(t *testing.T) {
	t.Parallel()

	t.Run("leaves other parameters unchanged", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			url := "high:" + rapid.StringMatching(`[a-z?&=#%:/@+.]{0,40}`).Draw(t, "url")
			choice, err := connect.Resolve(connect.Connection{URL: url})
			if err == nil && choice.Defaults == (outmill.WorkerDefaults{}) {
				require.Equal(t, url, choice.URL)
			}
		})
	})

	t.Run("settings of the program override the URL of its store", func(t *testing.T) {
		t.Parallel()
		url, _, err := outmill.DefaultsOf("high://h?lease=90s&batch_size=500&max_attempts=20")
		require.NoError(t, err)
		mine := outmill.WorkerDefaults{Lease: 1, BatchSize: 2, MaxAttempts: -1}

		got := subscriber.Config{Group: "g"}.WithDefaults(url)
		require.Equal(t, subscriber.Config{Group: "g", Lease: url.Lease, BatchSize: url.BatchSize,
			Retry: outmill.RetryPolicy{MaxAttempts: url.MaxAttempts}}, got)
		set := subscriber.Config{Lease: mine.Lease, BatchSize: mine.BatchSize, Retry: outmill.RetryPolicy{MaxAttempts: mine.MaxAttempts}}
		require.Equal(t, set, set.WithDefaults(url))
		require.Equal(t, subscriber.Config{}, subscriber.Config{}.WithDefaults(outmill.WorkerDefaults{}), "the built-in defaults come last")

		require.Equal(t, forwarder.Config{Lease: url.Lease, BatchSize: url.BatchSize, Retry: outmill.RetryPolicy{MaxAttempts: url.MaxAttempts}},
			forwarder.Config{}.WithDefaults(url))
		own := forwarder.Config{Lease: mine.Lease, BatchSize: mine.BatchSize, Retry: outmill.RetryPolicy{MaxAttempts: mine.MaxAttempts}}
		require.Equal(t, own, own.WithDefaults(url))
	})
}
