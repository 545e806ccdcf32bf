package main

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/testenv/kafkatest"
	"github.com/outmill/outmill/monitor"
)

// diagnose runs doctor, which must end with this code.
func diagnose(t *testing.T, code int, args ...string) (report monitor.Report) {
	t.Helper()
	got := tool(t, append([]string{"doctor", "-o", "json"}, args...)...)
	require.Equal(t, code, got.code, got.stderr)
	require.Empty(t, got.stderr)
	require.NoError(t, json.Unmarshal([]byte(got.stdout), &report), got.stdout)
	return report
}

func TestDoctor(t *testing.T) {
	t.Parallel()

	t.Run("a store that works is fine, and the code is 0", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, w world) {
			require.Contains(t, ok(t, "doctor", w.url), " is fine.\n")
			report := diagnose(t, exitOK, w.url)
			require.Equal(t, "ok", report.Status)
			require.Equal(t, w.Name(), report.Store)
			require.Empty(t, report.Problems)
		})
	})

	t.Run("what it finds has a remedy, and the code is 1", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, w world) {
			w.append(t, orders(3)...)
			report := diagnose(t, exitFailed, w.url)
			require.Len(t, report.Problems, 1)
			require.Equal(t, []string{"topic_unread", "orders"}, []string{report.Problems[0].Kind, report.Problems[0].Topic})
			got := tool(t, "doctor", w.url)
			require.Equal(t, exitFailed, got.code)
			require.Contains(t, got.stdout, "has 0 failures and 1 warning.\n\nwarning: topic_unread, since ")
			require.Contains(t, got.stdout, "3 records wait")
			require.Contains(t, got.stdout, "Start a subscriber or forwarder")
			require.NotContains(t, got.stdout, "S3CRET")
			require.Empty(t, got.stderr)
		})
	})

	t.Run("a database without a schema is a failure", func(t *testing.T) {
		t.Parallel()
		file := newFile(t)
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		report := diagnose(t, exitFailed, "sqlite:"+file)
		require.Equal(t, "schema_missing", report.Problems[0].Kind)
		require.Equal(t, "failure", report.Status)
	})

	t.Run("a store that cannot be reached could not be checked, and the code is 2", func(t *testing.T) {
		t.Parallel()
		got := tool(t, "doctor", "postgres://me:S3CRET@127.0.0.1:1/shop", "--timeout", "5s")
		require.Equal(t, exitUsage, got.code)
		require.Empty(t, got.stdout)
		require.Contains(t, got.stderr, "127.0.0.1")
		require.NotContains(t, got.stderr, "S3CRET")
		require.NotContains(t, got.stderr, "-h shows the usage")
	})

	t.Run("a broker that answers is fine, and one that does not is a failure", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		broker := kafkatest.Fake(t)
		diagnose(t, exitOK, w.url, "--to", "kafka://"+broker.Addrs[0])
		for _, to := range []string{"kafka://me:S3CRET@127.0.0.1:1", "nats://me:S3CRET@127.0.0.1:1"} {
			report := diagnose(t, exitFailed, w.url, "--to", to, "--timeout", "2s")
			require.Len(t, report.Problems, 1)
			require.Equal(t, "broker_unreachable", report.Problems[0].Kind)
			require.NotContains(t, report.Problems[0].Text, "S3CRET")
		}
	})

	t.Run("dead records that rise are seen with watch", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.register(t, "billing", "orders")
		w.append(t, orders(1)...)
		w.kill(t, "billing", "orders", "bad")
		done := make(chan result, 1)
		go func() { done <- outmillTool(t.Context(), "doctor", w.url, "--watch", "500ms", "-o", "json") }()
		var got result
		for got.stdout == "" {
			w.append(t, orders(1)...)
			w.kill(t, "billing", "orders", "bad")
			select {
			case got = <-done:
				require.Equal(t, exitFailed, got.code, got.stderr)
			default:
			}
		}
		var report monitor.Report
		require.NoError(t, json.Unmarshal([]byte(got.stdout), &report))
		require.Equal(t, []string{"dead_records", "dead_rising"}, []string{report.Problems[0].Kind, report.Problems[1].Kind})
	})

	t.Run("wrong usage is refused", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		for want, args := range map[string][]string{
			"--task is":         {w.url, "--task", "sing"},
			"--output":          {w.url, "-o", "xml"},
			"--to begins":       {w.url, "--to", "carrier-pigeon:"},
			"no store is named": {},
			"max-transaction":   {w.url, "--max-transaction", "long"},
		} {
			got := tool(t, append([]string{"doctor"}, args...)...)
			require.Equal(t, exitUsage, got.code, "%v: %s", args, got.stderr)
			require.Contains(t, got.stderr, want)
			require.Contains(t, got.stderr, "-h shows the usage")
		}
	})
}
