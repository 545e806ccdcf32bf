package storekit_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// ear records the topics of the calls.
type ear struct{ heard []string }

func (e *ear) hear(topic string) { e.heard = append(e.heard, topic) }

func TestNotifier(t *testing.T) {
	t.Parallel()

	t.Run("every listener hears the topics of a notice", func(t *testing.T) {
		t.Parallel()
		var n storekit.Notifier
		var one, two ear
		require.False(t, n.HasListeners())
		n.Listen(t.Context(), one.hear)
		n.Listen(t.Context(), two.hear)
		require.True(t, n.HasListeners())
		n.Notify("orders", "bills")
		n.Notify()
		require.Equal(t, []string{"orders", "bills", ""}, one.heard)
		require.Equal(t, one.heard, two.heard)
	})

	t.Run("a listener whose context has ended hears nothing", func(t *testing.T) {
		t.Parallel()
		var n storekit.Notifier
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var e ear
		n.Listen(ctx, e.hear)
		require.False(t, n.HasListeners())
		n.Notify()
		require.Empty(t, e.heard)
	})

	t.Run("a closed notifier is quiet", func(t *testing.T) {
		t.Parallel()
		var n storekit.Notifier
		var before, after ear
		n.Listen(t.Context(), before.hear)
		n.Close()
		n.Listen(t.Context(), after.hear)
		n.Notify()
		require.False(t, n.HasListeners())
		require.Empty(t, before.heard)
		require.Empty(t, after.heard)
	})

	t.Run("a notice names each topic once and none where they are too many", func(t *testing.T) {
		t.Parallel()
		records := func(topics int) []*outmill.Record {
			var list []*outmill.Record
			for i := range 2 * topics {
				list = append(list, &outmill.Record{Topic: fmt.Sprint(i % topics)})
			}
			return list
		}
		require.Equal(t, []string{"0", "1", "2"}, storekit.TopicsOf(records(3)))
		require.Len(t, storekit.TopicsOf(records(64)), 64)
		require.Empty(t, storekit.TopicsOf(records(65)))
	})

	t.Run("topics of a transaction are gathered for its store alone", func(t *testing.T) {
		t.Parallel()
		var topics storekit.TopicSet
		ctx := storekit.GatherTopics(t.Context(), "store", &topics)
		storekit.NoteTopics(ctx, "other store", []string{"bills"})
		storekit.NoteTopics(t.Context(), "store", []string{"bills"})
		require.Empty(t, topics.List())
		storekit.NoteTopics(ctx, "store", []string{"orders"})
		require.Equal(t, []string{"orders"}, topics.List())
		storekit.NoteTopics(ctx, "store", nil)
		storekit.NoteTopics(ctx, "store", []string{"orders"})
		require.Empty(t, topics.List(), "any topic")
	})
}
