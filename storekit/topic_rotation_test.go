package storekit_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func Test_each_topic_comes_first_in_turn(t *testing.T) {
	t.Parallel()
	var r storekit.TopicRotation
	for _, want := range [][]string{{"a", "b", "c"}, {"b", "c", "a"}, {"c", "a", "b"}, {"a", "b", "c"}} {
		require.Equal(t, want, r.Order("g", outmill.Topics{}, []string{"c", "a", "b"}))
	}
}

func Test_a_topic_that_is_new_or_gone_does_not_disturb_the_turn(t *testing.T) {
	t.Parallel()
	var r storekit.TopicRotation
	require.Equal(t, []string{"a", "c"}, r.Order("g", outmill.Topics{}, []string{"a", "c"}))
	require.Equal(t, []string{"b", "c", "a"}, r.Order("g", outmill.Topics{}, []string{"a", "b", "c"}))
	require.Equal(t, []string{"c", "a"}, r.Order("g", outmill.Topics{}, []string{"a", "c"}))
}

func Test_groups_and_selections_have_turns_of_their_own(t *testing.T) {
	t.Parallel()
	var r storekit.TopicRotation
	other := outmill.Topics{Include: []string{"*"}}
	for _, group := range []string{"g", "h"} {
		for _, selection := range []outmill.Topics{{}, other} {
			require.Equal(t, []string{"a", "b"}, r.Order(group, selection, []string{"b", "a"}))
		}
	}
}

func Test_topics_that_were_busy_a_moment_ago_are_remembered_for_a_moment(t *testing.T) {
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
}

func Test_topics_that_a_look_left_out_are_looked_for(t *testing.T) {
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
}
