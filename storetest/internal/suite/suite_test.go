package suite

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSuite_Unsupported(t *testing.T) {
	t.Parallel()
	check := func(unsupported map[string]string) error {
		return Suite{
			Sections:    []Section{{Name: "wake", Sentences: []Sentence{{Name: "a hint comes"}}}},
			Unsupported: unsupported,
		}.checkUnsupported()
	}
	t.Run("names a section or a sentence", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, check(nil))
		require.NoError(t, check(map[string]string{"wake": "the engine cannot tell", "wake: a hint comes": "the engine cannot tell"}))
	})
	t.Run("names nothing that the suite does not have", func(t *testing.T) {
		t.Parallel()
		require.ErrorContains(t, check(map[string]string{"sleep": "tired"}), `"sleep"`)
	})
	t.Run("says why", func(t *testing.T) {
		t.Parallel()
		require.ErrorContains(t, check(map[string]string{"wake": ""}), "without a reason")
	})
}
