package bell_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/bell"
)

// ear remembers what it heard.
type ear struct{ heard []string }

func (e *ear) hear(topic string) { e.heard = append(e.heard, topic) }

func Test_every_listener_hears_the_topics_of_a_ring(t *testing.T) {
	t.Parallel()
	var b bell.Bell
	var one, two ear
	require.False(t, b.Heard())
	b.Listen(t.Context(), one.hear)
	b.Listen(t.Context(), two.hear)
	require.True(t, b.Heard())
	b.Ring("orders", "bills")
	b.Ring()
	require.Equal(t, []string{"orders", "bills", ""}, one.heard)
	require.Equal(t, one.heard, two.heard)
}

func Test_a_listener_whose_context_has_ended_hears_nothing(t *testing.T) {
	t.Parallel()
	var b bell.Bell
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var e ear
	b.Listen(ctx, e.hear)
	require.False(t, b.Heard())
	b.Ring()
	require.Empty(t, e.heard)
}

func Test_a_closed_bell_is_quiet(t *testing.T) {
	t.Parallel()
	var b bell.Bell
	var before, after ear
	b.Listen(t.Context(), before.hear)
	b.Close()
	b.Listen(t.Context(), after.hear)
	b.Ring()
	require.False(t, b.Heard())
	require.Empty(t, before.heard)
	require.Empty(t, after.heard)
}

func Test_a_ring_names_each_topic_once_and_none_where_they_are_too_many(t *testing.T) {
	t.Parallel()
	records := func(topics int) []*outmill.Record {
		var list []*outmill.Record
		for i := range 2 * topics {
			list = append(list, &outmill.Record{Topic: fmt.Sprint(i % topics)})
		}
		return list
	}
	require.Equal(t, []string{"0", "1", "2"}, bell.TopicsOf(records(3)))
	require.Len(t, bell.TopicsOf(records(64)), 64)
	require.Empty(t, bell.TopicsOf(records(65)))
}

func Test_topics_of_a_transaction_are_gathered_for_its_store_alone(t *testing.T) {
	t.Parallel()
	var topics bell.Topics
	ctx := bell.Gather(t.Context(), "store", &topics)
	bell.Note(ctx, "other store", []string{"bills"})
	bell.Note(t.Context(), "store", []string{"bills"})
	require.Empty(t, topics.List())
	bell.Note(ctx, "store", []string{"orders"})
	require.Equal(t, []string{"orders"}, topics.List())
	bell.Note(ctx, "store", nil)
	bell.Note(ctx, "store", []string{"orders"})
	require.Empty(t, topics.List(), "any topic")
}
