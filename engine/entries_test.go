package engine

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

func TestJoined(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		first, rest := rapid.String().Draw(t, "first"), rapid.String().Draw(t, "rest")
		a, b := parts(joined(first, rest))
		require.Equal(t, [2]string{first, rest}, [2]string{a, b})
		require.True(t, strings.HasPrefix(joined(first, rest), joined(first, "")))
		other := rapid.String().Draw(t, "other")
		has := strings.HasPrefix(joined(other, rest), joined(first, ""))
		require.Equal(t, other == first, has, "only keys of the same first part have the prefix")
	})
	for _, key := range []string{"", "5", "x:y", "-1:a", "9:a"} {
		_, rest := parts(key)
		require.Equal(t, key, rest, "a key that joined did not make does no harm")
	}
}

func TestRegistrationKey(t *testing.T) {
	t.Parallel()
	of := func(group string, include, exclude []string) string {
		return registrationKey(outmill.Registration{Group: group, Topics: outmill.Topics{Include: include, Exclude: exclude}})
	}
	keys := map[string]bool{}
	for _, key := range []string{
		of("g", []string{"a", "b"}, nil), of("g", []string{"b", "a"}, nil), of("g", []string{"a"}, []string{"b"}), of("g", []string{"a,b"}, nil),
		of("g", nil, []string{"a", "b"}), of("g", []string{"a", "exclude", "b"}, nil), of("h", []string{"a", "b"}, nil),
	} {
		require.False(t, keys[key], "each group and selection has a key of its own")
		keys[key] = true
	}
	long := make([]string, 1000)
	for i := range long {
		long[i] = strings.Repeat("t", 255)
	}
	require.Less(t, len(of(strings.Repeat("g", 255), long, long)), 1000, "a key fits into an index")
}

func TestNoteNames(t *testing.T) {
	t.Parallel()
	key, ok := driver.KeyOf(driver.KeyNote("p7"))
	require.True(t, ok)
	require.Equal(t, "p7", key)
	for _, name := range []string{driver.PauseNote(7), driver.KeyedPauseNote(7)} {
		number, ok := driver.ByPause(name)
		require.True(t, ok)
		require.Equal(t, int64(7), number)
		_, ok = driver.KeyOf(name)
		require.False(t, ok)
	}
	for _, blocker := range []string{"", driver.RetryBlocks, outmill.NewOwnerToken().String(), driver.KeyNote("p7"), "p", "px"} {
		_, ok := driver.ByPause(blocker)
		require.False(t, ok, blocker)
	}
}
