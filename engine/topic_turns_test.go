package engine

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestTopicTurns(t *testing.T) {
	t.Parallel()
	topics := make([]string, 100)
	for i := range topics {
		topics[i] = fmt.Sprintf("topic %02d", i)
	}

	t.Run("half of a claim is for the topics that have been due longest, a quarter for the newest", func(t *testing.T) {
		t.Parallel()
		var turns topicTurns
		served := turns.order(topics, 20)[:20]
		require.Subset(t, served, topics[:10])
		require.Subset(t, served, topics[95:])
	})
	t.Run("claims of one record serve each topic within four rounds, however long others have been due", func(t *testing.T) {
		t.Parallel()
		var turns topicTurns
		seen := map[string]bool{}
		for range 4 * len(topics) {
			seen[turns.order(topics, 1)[0]] = true
		}
		require.Len(t, seen, len(topics))
	})
	t.Run("each topic is in the order once", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(rt *rapid.T) {
			var turns topicTurns
			for range 5 {
				list := topics[:rapid.IntRange(0, 30).Draw(rt, "topics")]
				ordered := turns.order(list, rapid.IntRange(0, 40).Draw(rt, "served"))
				slices.Sort(ordered)
				require.Equal(rt, list, ordered)
			}
		})
	})
}
