package storekit_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

func TestTopics(t *testing.T) {
	t.Parallel()

	t.Run("validation of topics reports every bad entry", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, storekit.CheckTopics(outmill.Topics{}))
		require.NoError(t, storekit.CheckTopics(outmill.Topics{Include: []string{"a", "*"}, Exclude: []string{`\*`}}))

		err := storekit.CheckTopics(outmill.Topics{
			Include: []string{"", "ok", "a\x00"},
			Exclude: []string{"\xff", strings.Repeat("x", 2*outmill.MaxTopicLength+1)},
		})
		require.ErrorIs(t, err, outmill.ErrInvalidRecord)
		require.Len(t, joined(err), 4)
		for _, part := range []string{"is empty", "NUL", "UTF-8", "511 characters"} {
			require.ErrorContains(t, err, part)
		}
	})
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
