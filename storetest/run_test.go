package storetest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func Test_what_a_store_does_not_support_is_named_as_the_suite_names_it(t *testing.T) {
	t.Parallel()
	require.NoError(t, checkUnsupported(nil))
	require.NoError(t, checkUnsupported(map[string]string{
		"wake":                               "the engine cannot tell",
		"wake: a hint comes after an append": "the engine cannot tell",
	}))
	require.ErrorContains(t, checkUnsupported(map[string]string{"sleep": "tired"}), `"sleep"`)
	require.ErrorContains(t, checkUnsupported(map[string]string{"wake": ""}), "without a reason")
}

func Test_no_two_sentences_of_a_section_have_one_name(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, section := range sections() {
		require.NotEmpty(t, section.sentences, section.name)
		for _, sentence := range section.sentences {
			name := section.name + ": " + sentence.name
			require.False(t, seen[name], name)
			require.NotContains(t, name, "/", "the name of a subtest")
			seen[name] = true
		}
	}
}
