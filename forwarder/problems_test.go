package forwarder_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/storekit"
)

func TestForwarder_Problems(t *testing.T) {
	t.Parallel()

	t.Run("the store has the problem of an unavailable broker until it is back", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		register(t, store)
		add(t, store, recs("orders", "", 10)...)
		d := newBatchDestination(t)
		d.judge(func(string, *message.Message) error {
			return fmt.Errorf("%w: dial \x00\xff %s", errAway, strings.Repeat("é", storekit.MaxProblemText))
		})
		began := time.Now().Add(-time.Second)
		start(t, store, d, quick())
		problems := waitForProblems(t, store, func(p map[string]string) bool { return len(p) > 0 })
		require.Len(t, problems, 1)
		text := problems[""]
		require.Regexp(t, `^the broker has accepted no message since \S+Z: connection refused: dial \x{FFFD}+ é+$`, text)
		require.LessOrEqual(t, len(text), storekit.MaxProblemText)
		since, err := time.Parse(time.RFC3339, strings.TrimSuffix(strings.Fields(text)[7], ":"))
		require.NoError(t, err)
		require.WithinRange(t, since, began, time.Now())

		d.comeBack()
		waitForProblems(t, store, func(p map[string]string) bool { return len(p) == 0 })
		requireEmpty(t, store)
	})

	t.Run("the store has the topics on hold, at most 20 of them, until the broker takes them", func(t *testing.T) {
		t.Parallel()
		store := newStore(t)
		register(t, store)
		for i := range 25 {
			add(t, store, rec(fmt.Sprintf("bad%02d", i), "", fmt.Sprint("m", i)))
		}
		add(t, store, recs("orders", "", 10)...)
		d := newBatchDestination(t)
		d.judge(func(topic string, _ *message.Message) error {
			if strings.HasPrefix(topic, "bad") {
				return fmt.Errorf("%w: no such topic", outmill.ErrTopicUnavailable)
			}
			return nil
		})
		start(t, store, d, quick())
		problems := waitForProblems(t, store, func(p map[string]string) bool { return len(p) == storekit.MaxProblems })
		require.Regexp(t, `^the broker has refused the topic since \S+Z: .*no such topic$`, problems["bad00"])
		require.NotContains(t, problems, "orders")

		d.judge(nil)
		waitForProblems(t, store, func(p map[string]string) bool { return len(p) == 0 })
		requireEmpty(t, store)
	})
}

// waitForProblems returns the problems of the forwarder's only worker when they are right.
func waitForProblems(t *testing.T, store outmill.Inspector, right func(map[string]string) bool) (problems map[string]string) {
	t.Helper()
	require.Eventually(t, func() bool {
		groups, err := store.Groups(t.Context())
		require.NoError(t, err)
		for _, g := range groups {
			if g.Group == forwarder.DefaultGroup && len(g.Workers) == 1 {
				problems = g.Workers[0].Problems
				return right(problems)
			}
		}
		return false
	}, patience, tick, "the problems did not become right")
	return problems
}
