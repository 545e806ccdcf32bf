package engine

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

func TestBusyTopics(t *testing.T) {
	t.Parallel()

	t.Run("forget drops all notes", func(t *testing.T) {
		t.Parallel()
		var busy busyTopics
		busy.forget()
		busy.note("readers", outmill.Topics{}, []string{"orders"})
		require.Equal(t, []string{"orders"}, busy.topics("readers", outmill.Topics{}))
		busy.forget()
		require.Nil(t, busy.topics("readers", outmill.Topics{}))
	})

	t.Run("topics that were busy a moment ago are remembered for a moment", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			var b busyTopics
			require.Nil(t, b.topics("g", outmill.Topics{}))
			b.note("g", outmill.Topics{}, []string{"a"})
			require.Equal(t, []string{"a"}, b.topics("g", outmill.Topics{}))
			require.Nil(t, b.topics("h", outmill.Topics{}))
			require.Nil(t, b.topics("g", outmill.Topics{Include: []string{"*"}}))
			time.Sleep(time.Second)
			require.Nil(t, b.topics("g", outmill.Topics{}))
		})
	})

	t.Run("topics that a look left out are looked for", func(t *testing.T) {
		t.Parallel()
		without := func(names ...string) outmill.Topics {
			return outmill.Topics{Include: []string{"a", "b", "c"}, Exclude: names}
		}
		var b busyTopics
		b.note("g", without("c"), []string{"a", "b"})
		require.Equal(t, []string{"a", "b"}, b.topics("g", without("c")))
		require.Equal(t, []string{"b"}, b.topics("g", without("a", "c")))
		require.Nil(t, b.topics("g", without()))
		require.Nil(t, b.topics("g", without("b")))
	})
}
