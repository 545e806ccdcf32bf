package outmill_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func TestTopics(t *testing.T) {
	t.Parallel()

	t.Run("topics select", func(t *testing.T) {
		t.Parallel()
		for _, tc := range []struct {
			name             string
			include, exclude []string
			selected, not    []string
		}{
			{
				name:     "everything when nothing is listed",
				selected: []string{"orders", "*", `\`, "ü"},
			},
			{
				name: "a name is that name alone, with its case", include: []string{"orders"},
				selected: []string{"orders"}, not: []string{"Orders", "orders2", "order", " orders"},
			},
			{
				name: "a star is any run, the empty one too", include: []string{"order*ed"},
				selected: []string{"ordered", "order.placed", "ordereded", "order\ned"}, not: []string{"ordere", "xordered", "order.placed2"},
			},
			{
				name: "a star crosses dots and slashes", include: []string{"eu.*"},
				selected: []string{"eu.", "eu.a.b/c"}, not: []string{"eu", "us.eu.a"},
			},
			{
				name: "several stars go back as far as it takes", include: []string{"*ab*abc*"},
				selected: []string{"abababc", "xxabyyabczz"}, not: []string{"ababab", "abc"},
			},
			{
				name: "a backslash takes the meaning from a star", include: []string{`a\*b`},
				selected: []string{"a*b"}, not: []string{"ab", "axb", `a\*b`},
			},
			{
				name: "a backslash takes the meaning from a backslash", include: []string{`a\\*`},
				selected: []string{`a\`, `a\b`}, not: []string{"a", "ab"},
			},
			{
				name: "a backslash before anything else, and at the end, is itself", include: []string{`a\b`, `c\`},
				selected: []string{`a\b`, `c\`}, not: []string{"ab", "c"},
			},
			{
				name: "an exclusion wins over an inclusion", include: []string{"orders*"}, exclude: []string{"*.internal"},
				selected: []string{"orders.placed"}, not: []string{"orders.internal"},
			},
			{
				name: "an exclusion alone leaves the rest", exclude: []string{"poison"},
				selected: []string{"orders", "poison2"}, not: []string{"poison"},
			},
			{
				name: "an empty entry selects no topic", include: []string{""},
				not: []string{"orders"},
			},
		} {
			t.Run(tc.name, func(t *testing.T) {
				t.Parallel()
				topics := outmill.Topics{Include: tc.include, Exclude: tc.exclude}
				for _, topic := range tc.selected {
					require.True(t, topics.Match(topic), "%q should be selected", topic)
				}
				for _, topic := range tc.not {
					require.False(t, topics.Match(topic), "%q should not be selected", topic)
				}
			})
		}
	})

	t.Run("a pattern matches the same topics as the naive reference", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			pattern, topic := topicText().Draw(t, "pattern"), topicText().Draw(t, "topic")
			require.Equal(t, naiveMatch(pattern, topic), outmill.Topics{Include: []string{pattern}}.Match(topic))
		})
	})

	t.Run("Exact selects its topic and no other", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			topic, other := topicText().Draw(t, "topic"), topicText().Draw(t, "other")
			topics := outmill.Topics{Include: []string{outmill.Exact(topic)}}
			require.True(t, topics.Match(topic))
			require.Equal(t, topic == other, topics.Match(other))
		})
	})

	t.Run("Names returns the name that Exact got", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			given := rapid.SliceOfNDistinct(topicText(), 1, 5, rapid.ID[string]).Draw(t, "topics")
			var topics outmill.Topics
			for _, topic := range given {
				topics.Include = append(topics.Include, outmill.Exact(topic))
			}
			names, ok := topics.Names()
			require.True(t, ok)
			require.Equal(t, given, names)
		})
	})

	t.Run("Names and Match never disagree", func(t *testing.T) {
		t.Parallel()
		rapid.Check(t, func(t *rapid.T) {
			topics := outmill.Topics{
				Include: rapid.SliceOfN(topicText(), 0, 4).Draw(t, "include"),
				Exclude: rapid.SliceOfN(topicText(), 0, 2).Draw(t, "exclude"),
			}
			names, ok := topics.Names()
			if !ok {
				return
			}
			topic := topicText().Draw(t, "topic")
			require.Equal(t, topics.Match(topic), contains(names, topic))
			for _, name := range names {
				require.True(t, topics.Match(name))
			}
		})
	})

	t.Run("Names", func(t *testing.T) {
		t.Parallel()
		t.Run("of all topics there are none", func(t *testing.T) {
			t.Parallel()
			_, ok := outmill.Topics{Exclude: []string{"a"}}.Names()
			require.False(t, ok)
		})
		t.Run("one wildcard makes the selection more than a list", func(t *testing.T) {
			t.Parallel()
			_, ok := outmill.Topics{Include: []string{"a", "b*"}}.Names()
			require.False(t, ok)
		})
		t.Run("a name that is listed twice or excluded counts once or not at all", func(t *testing.T) {
			t.Parallel()
			names, ok := outmill.Topics{Include: []string{"a", "b", "a", "c"}, Exclude: []string{"b*"}}.Names()
			require.True(t, ok)
			require.Equal(t, []string{"a", "c"}, names)
		})
		t.Run("a list that excludes all of itself is an empty list, not all topics", func(t *testing.T) {
			t.Parallel()
			names, ok := outmill.Topics{Include: []string{"a"}, Exclude: []string{"*"}}.Names()
			require.True(t, ok)
			require.Empty(t, names)
		})
	})

	t.Run("the longest topic still makes a valid pattern", func(t *testing.T) {
		t.Parallel()
		topic := strings.Repeat("*", outmill.MaxTopicLength)
		require.NoError(t, storekit.CheckTopic(topic))
		require.NoError(t, storekit.CheckTopics(outmill.Topics{Include: []string{outmill.Exact(topic)}}))
	})
}

// topicText has few letters, so that patterns often match topics. Each test has its own
// generator, because parallel tests must not share one.
func topicText() *rapid.Generator[string] {
	return rapid.StringOfN(rapid.RuneFrom([]rune(`ab*\ü`)), 0, 12, -1)
}

func FuzzTopicsMatch(f *testing.F) {
	for _, seed := range [][2]string{
		{"a*b", "axb"}, {`\**`, "*x"}, {`\\`, `\`}, {"**", ""}, {"*a*a*a", "aaaaaaaaab"}, {"\xff*", "\xff\xfe"}, {`a\`, `a\`},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, pattern, topic string) {
		topics := outmill.Topics{Include: []string{pattern}}
		require.Equal(t, naiveMatch(pattern, topic), topics.Match(topic))
		require.True(t, outmill.Topics{Include: []string{outmill.Exact(topic)}}.Match(topic))
		if names, ok := topics.Names(); ok {
			require.Equal(t, contains(names, topic), topics.Match(topic))
		}
	})
}

// naiveMatch is the definition of a pattern, word for word, as a table over
// the pattern's elements and the topic's bytes.
func naiveMatch(pattern, topic string) bool {
	type element struct {
		any     bool
		literal byte
	}
	var elements []element
	for i := 0; i < len(pattern); i++ {
		switch {
		case pattern[i] == '*':
			elements = append(elements, element{any: true})
		case pattern[i] == '\\' && strings.IndexAny(pattern[i+1:], `*\`) == 0:
			i++
			elements = append(elements, element{literal: pattern[i]})
		default:
			elements = append(elements, element{literal: pattern[i]})
		}
	}
	// reached[j]: the elements so far can stand for topic[:j]
	reached := make([]bool, len(topic)+1)
	reached[0] = true
	for _, e := range elements {
		next := make([]bool, len(topic)+1)
		for j := range next {
			switch {
			case e.any:
				next[j] = reached[j] || j > 0 && next[j-1]
			default:
				next[j] = j > 0 && reached[j-1] && topic[j-1] == e.literal
			}
		}
		reached = next
	}
	return reached[len(topic)]
}

func contains(list []string, s string) bool {
	for _, item := range list {
		if item == s {
			return true
		}
	}
	return false
}

// joined returns the errors that errors.Join combined, at any depth.
func joined(err error) []error {
	var many interface{ Unwrap() []error }
	if !errors.As(err, &many) {
		return []error{err}
	}
	var all []error
	for _, e := range many.Unwrap() {
		all = append(all, joined(e)...)
	}
	return all
}
