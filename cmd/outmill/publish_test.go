package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPublish(t *testing.T) {
	t.Parallel()

	t.Run("publish appends a message with all that its flags say", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, w world) {
			w.register(t, "billing", "orders")
			w.register(t, "audit", "orders")
			report := okJSON[publishReport](t, "publish", w.url, "--topic", "orders", "--payload", `{"id":7}`, "--key", "k7", "--message-id", "m7",
				"--correlation-id", "c7", "--tenant", "t7", "--metadata", "name=order.placed", "--metadata", "a=b=c", "--delay", "1h", "--ttl", "2h")
			require.Equal(t, 1, report.Published)
			require.ElementsMatch(t, []string{"audit", "billing"}, report.Messages[0].Groups)
			view := okJSON[recordView](t, "show", w.url, report.Messages[0].ID, "--payload")
			require.Equal(t, []string{"orders", `{"id":7}`, "k7", "m7", "c7", "t7"},
				[]string{view.Topic, *view.Payload, view.Key, view.MessageID, view.CorrelationID, view.TenantID})
			require.Equal(t, map[string]string{"name": "order.placed", "a": "b=c"}, view.Metadata)
			require.WithinDuration(t, time.Now().Add(time.Hour), *view.DueAt, time.Minute)
			require.WithinDuration(t, time.Now().Add(2*time.Hour), *view.ExpiresAt, time.Minute)
		})
	})

	t.Run("the payload may come from the standard input or from a file", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		file := filepath.Join(t.TempDir(), "order.json")
		require.NoError(t, os.WriteFile(file, []byte("from a file"), 0o600))
		for _, got := range []result{
			toolWith(t, "from stdin\n", "publish", w.url, "--topic", "orders"),
			tool(t, "publish", w.url, "--topic", "orders", "--payload-file", file),
		} {
			require.Equal(t, exitOK, got.code, got.stderr)
			require.Contains(t, got.stdout, "No group reads the topic yet")
		}
		records := okJSON[listReport](t, "list", w.url, "--payload").Records
		require.Equal(t, "from stdin\n", *records[0].Payload)
		require.Equal(t, "from a file", *records[1].Payload)
	})

	t.Run("each line of the input becomes a message, in their order", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		got := toolWith(t, strings.Repeat("a\r\n\n", 249)+"last", "publish", w.url, "--topic", "orders", "--lines")
		require.Equal(t, exitOK, got.code, got.stderr)
		require.Equal(t, "Published 250 messages.\n", got.stdout)
		records := okJSON[listReport](t, "list", w.url, "--payload", "--limit", "1000").Records
		require.Len(t, records, 250)
		require.Equal(t, "a", *records[0].Payload)
		require.Equal(t, "last", *records[249].Payload)
	})

	t.Run("a dedup key publishes once", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		args := []string{"publish", w.url, "--topic", "orders", "--payload", "x", "--dedup-key", "d7"}
		require.Contains(t, ok(t, args...), "Published message")
		require.Contains(t, ok(t, args...), "Nothing was published")
		require.Len(t, okJSON[listReport](t, "list", w.url).Records, 1)
	})

	t.Run("arguments that make no sense are refused by name before anything is written", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		for want, args := range map[string][]string{
			"--topic is missing": {},
			"--metadata":         {"--topic", "a", "--metadata", "name"},
			"--payload and":      {"--topic", "a", "--payload", "x", "--payload-file", "y"},
			"--lines":            {"--topic", "a", "--lines", "--message-id", "x"},
			"--delay":            {"--topic", "a", "--delay", "-1s"},
			"--ttl":              {"--topic", "a", "--ttl", "-1s"},
		} {
			got := tool(t, append([]string{"publish", w.url}, args...)...)
			require.Equal(t, exitUsage, got.code, args)
			require.Contains(t, got.stderr, want)
		}
		got := tool(t, "publish", w.url, "--topic", " a")
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.stderr, "topic")
		require.Empty(t, okJSON[listReport](t, "list", w.url).Records)
	})
}
