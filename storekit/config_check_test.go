package storekit_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func TestConfigCheck(t *testing.T) {
	t.Parallel()
	t.Run("names each setting that it refuses, with the Config, the value and what is wanted", func(t *testing.T) {
		t.Parallel()
		check := storekit.CheckConfig("shop.Config")
		check.Refuse(true, "Table is %q: want a name", "?")
		check.Duration("Retain", -time.Second, "")
		check.Duration("RetainJoins", -time.Minute, "24 h")
		check.MaxPayload(11, 10, "10 B")
		check.AppendLogLevel(slog.LevelWarn)
		err := check.Err()
		require.ErrorIs(t, err, outmill.ErrInvalidConfig)
		for _, text := range []string{
			`shop.Config.Table is "?": want a name`, "shop.Config.Retain is -1s: want 0 or more",
			"shop.Config.RetainJoins is -1m0s: want 0 (24 h) or more",
			"shop.Config.MaxPayload is 11: want 0 (10 B) to 10", "shop.Config.AppendLogLevel is WARN: want",
		} {
			require.ErrorContains(t, err, text)
		}
		require.Len(t, joined(err), 5)
	})
	t.Run("accepts all that makes sense", func(t *testing.T) {
		t.Parallel()
		check := storekit.CheckConfig("shop.Config")
		check.Refuse(false, "Table is %q: want a name", "orders")
		check.Duration("Retain", 0, "")
		check.Duration("RetainJoins", time.Hour, "24 h")
		check.MaxPayload(0, 10, "10 B")
		check.MaxPayload(10, 10, "10 B")
		for _, level := range []slog.Level{slog.LevelInfo, slog.LevelInfo - 1, slog.LevelDebug, slog.LevelDebug - 4} {
			check.AppendLogLevel(level)
		}
		require.NoError(t, check.Err())
	})
}
