package storekit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func TestTopicRotation(t *testing.T) {
	t.Parallel()

	t.Run("each topic comes first in turn", func(t *testing.T) {
		t.Parallel()
		var r storekit.TopicRotation
		for _, want := range [][]string{{"a", "b", "c"}, {"b", "c", "a"}, {"c", "a", "b"}, {"a", "b", "c"}} {
			require.Equal(t, want, r.Order("g", outmill.Topics{}, []string{"c", "a", "b"}))
		}
	})

	t.Run("a topic that is new or gone does not disturb the turn", func(t *testing.T) {
		t.Parallel()
		var r storekit.TopicRotation
		require.Equal(t, []string{"a", "c"}, r.Order("g", outmill.Topics{}, []string{"a", "c"}))
		require.Equal(t, []string{"b", "c", "a"}, r.Order("g", outmill.Topics{}, []string{"a", "b", "c"}))
		require.Equal(t, []string{"c", "a"}, r.Order("g", outmill.Topics{}, []string{"a", "c"}))
	})

	t.Run("groups and selections have turns of their own", func(t *testing.T) {
		t.Parallel()
		var r storekit.TopicRotation
		other := outmill.Topics{Include: []string{"*"}}
		for _, group := range []string{"g", "h"} {
			for _, selection := range []outmill.Topics{{}, other} {
				require.Equal(t, []string{"a", "b"}, r.Order(group, selection, []string{"b", "a"}))
			}
		}
	})

	t.Run("topics that were busy a moment ago are remembered for a moment", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var b storekit.BusyTopics
			require.Nil(t, b.Topics("g", outmill.Topics{}))
			b.Note("g", outmill.Topics{}, []string{"a"})
			require.Equal(t, []string{"a"}, b.Topics("g", outmill.Topics{}))
			require.Nil(t, b.Topics("h", outmill.Topics{}))
			require.Nil(t, b.Topics("g", outmill.Topics{Include: []string{"*"}}))
			time.Sleep(time.Second)
			require.Nil(t, b.Topics("g", outmill.Topics{}))
		})
	})

	t.Run("topics that a look left out are looked for", func(t *testing.T) {
		t.Parallel()
		without := func(names ...string) outmill.Topics {
			return outmill.Topics{Include: []string{"a", "b", "c"}, Exclude: names}
		}
		var b storekit.BusyTopics
		b.Note("g", without("c"), []string{"a", "b"})
		require.Equal(t, []string{"a", "b"}, b.Topics("g", without("c")))
		require.Equal(t, []string{"b"}, b.Topics("g", without("a", "c")))
		require.Nil(t, b.Topics("g", without()))
		require.Nil(t, b.Topics("g", without("b")))
	})
}
