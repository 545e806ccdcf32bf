package monitor_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/monitor"
	"github.com/outmill/outmill/sqlite"
)

func TestNewMetrics(t *testing.T) {
	t.Parallel()

	t.Run("two stores of one name are refused, and Config.Name tells them apart", func(t *testing.T) {
		t.Parallel()
		open := func(config sqlite.Config) *sqlite.Store {
			store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "orders.db"), config, nil)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, store.Close()) })
			return store
		}
		one, two := open(sqlite.Config{}), open(sqlite.Config{TablePrefix: "web_"})
		require.Equal(t, "sqlite:orders.db", one.Name())
		require.Equal(t, one.Name(), two.Name(), "neither the folder nor the prefix is in the default")
		_, err := monitor.NewMetrics(noop.NewMeterProvider(), monitor.MetricsConfig{}, one, two)
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		require.ErrorContains(t, err, `"sqlite:orders.db"`)
		require.ErrorContains(t, err, "Config.Name")

		metrics, err := monitor.NewMetrics(noop.NewMeterProvider(), monitor.MetricsConfig{}, one, open(sqlite.Config{Name: "web"}))
		require.NoError(t, err)
		require.NoError(t, metrics.Close())
	})
}
