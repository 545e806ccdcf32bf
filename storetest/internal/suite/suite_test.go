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

// Each section that holds in both modes runs in both, wherever all tests run.
func TestAmount(t *testing.T) {
	t.Parallel()
	type sections struct{ first, general bool }
	for name, c := range map[string]struct {
		of   amount
		runs sections
	}{
		"a quick run":                    {amount{}, sections{first: true}},
		"all tests":                      {amount{all: true}, sections{first: true, general: true}},
		"all tests under the detector":   {amount{all: true, race: true}, sections{first: true}},
		"the brief run behind these":     {amount{all: true, brief: true}, sections{general: true}},
		"a variant":                      {amount{all: true, variant: true}, sections{first: true}},
		"a variant in the brief run":     {amount{all: true, brief: true, variant: true}, sections{first: true}},
		"a quick run under the detector": {amount{race: true}, sections{first: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.runs.first, c.of.elsewhere(false) == "")
			require.Equal(t, c.runs.general, c.of.elsewhere(true) == "")
		})
	}
	require.True(t, amountOf("TestX_Variant/retained").variant)
	require.False(t, amountOf("TestX/a_Variant").variant)
}
