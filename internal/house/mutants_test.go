package house

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/mutants/catalog"
)

// TestMutants checks the catalog that internal/mutants runs. Code that a mutant changes may be edited: then the mutant is
// written again.
func TestMutants(t *testing.T) {
	t.Parallel()
	all, err := catalog.Load()
	require.NoError(t, err)

	t.Run("break each promise and each default once, or say why not", func(t *testing.T) {
		t.Parallel()
		var wanted []string
		promises, err := catalog.Promises(root)
		require.NoError(t, err)
		for _, p := range promises {
			wanted = append(wanted, p.Number)
		}
		settings, err := catalog.Settings(root)
		require.NoError(t, err)
		for _, setting := range settings {
			if !setting.Zero() {
				wanted = append(wanted, "default "+setting.Name)
			}
		}
		have, excused := map[string]bool{}, map[string]bool{}
		for _, m := range all.Mutants {
			have[m.Key] = true
			assert.Contains(t, wanted, m.Key, "%s: neither docs/spec.md nor docs/configuration.md has it", m.Place)
		}
		for _, e := range all.Exceptions {
			excused[e.Key] = true
			assert.NotEmpty(t, e.Why, "%s: say why %s has no mutant", e.Place, e.Key)
			assert.Contains(t, wanted, e.Key, "%s: neither docs/spec.md nor docs/configuration.md has it", e.Place)
		}
		for _, key := range wanted {
			assert.True(t, have[key] != excused[key], "%s: want a mutant in internal/mutants/catalog/rows, or the reason why it has none", key)
		}
	})

	t.Run("change lines that stand once in their file", func(t *testing.T) {
		t.Parallel()
		for _, m := range all.Mutants {
			text, err := os.ReadFile(filepath.Join(root, m.File))
			if assert.NoError(t, err, "%s: %s", m.Place, m.Key) {
				_, err = m.Apply(string(text))
				assert.NoError(t, err)
			}
			assert.False(t, strings.HasSuffix(m.File, "_test.go"), "%s: a mutant changes the code, and never its tests", m.Place)
		}
	})

	t.Run("are for tests that exist", func(t *testing.T) {
		t.Parallel()
		for _, m := range all.Mutants {
			for _, pkg := range m.Packages {
				_, err := catalog.TestsBearing(root, pkg, m.Bears)
				assert.NoError(t, err, "%s: %s", m.Place, m.Key)
			}
		}
	})
}
