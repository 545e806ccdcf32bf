package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/monitor"
)

func TestWhy(t *testing.T) {
	t.Parallel()

	t.Run("why explains a message by its id, and a record by its own", func(t *testing.T) {
		t.Parallel()
		onStores(t, func(t *testing.T, w world) {
			w.register(t, "billing", "orders")
			w.append(t, &outmill.Record{Topic: "orders", MessageID: "one", Payload: []byte("secret")})
			w.kill(t, "billing", "orders", "card 4711\nwas refused")
			text := ok(t, "why", w.url, "one")
			require.Contains(t, text, "The message has one record here.\n")
			require.Regexp(t, `(?m)^Record \S+ of message one, group billing, topic orders is dead\.$`, text)
			require.Regexp(t, `(?m)^  - It is dead after 1 claim\. .*"card 4711\\nwas refused"\.$`, text)
			require.NotContains(t, text, "secret")
			answer := okJSON[monitor.Answer](t, "why", w.url, "one")
			require.Equal(t, "dead", answer.Explanations[0].Reasons[0].Kind)
			require.Contains(t, ok(t, "why", w.url, answer.Explanations[0].Record.String()), "is dead")
		})
	})

	t.Run("why explains which record took a dedup key", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		first := &outmill.Record{Topic: "orders", MessageID: "one", DedupKey: "paid"}
		w.append(t, first, &outmill.Record{Topic: "orders", MessageID: "two", DedupKey: "paid"})
		text := ok(t, "why", w.url, "--topic", "orders", "--dedup-key", "paid")
		require.Regexp(t, `^Record `+first.ID.String()+` took the dedup key\. Until \S+Z .*`, text)
		require.Contains(t, text, "of message one")
		got := tool(t, "why", w.url, "--topic", "orders", "--dedup-key", "free")
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.stdout, "does not remember the dedup key")
	})

	t.Run("an id that the store does not have is a failure that does not guess", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		got := tool(t, "why", w.url, "nobody")
		require.Equal(t, exitFailed, got.code)
		require.Contains(t, got.stdout, "this store cannot tell which")
		require.Contains(t, got.stderr, `no record was found for "nobody"`)
	})

	t.Run("wrong arguments are refused", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		for _, args := range [][]string{{w.url}, {w.url, "one", "two"}, {w.url, "one", "--examine", "0"},
			{w.url, "--topic", "orders"}, {w.url, "--dedup-key", "paid"}, {w.url, "one", "--topic", "orders", "--dedup-key", "paid"}} {
			got := tool(t, append([]string{"why"}, args...)...)
			require.Equal(t, exitUsage, got.code, "%v: %s", args, got.stderr)
		}
	})
}
