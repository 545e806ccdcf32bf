package house

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// .ci/run finds the second mode of a suite, which does not run under the race detector, by the name of the test.
func TestSuites(t *testing.T) {
	t.Parallel()
	function := regexp.MustCompile(`^func (\w+)\(`)
	runs := regexp.MustCompile(`\b(storetest|joinstest)\.Run\(`)
	named := regexp.MustCompile(`^(TestConformance\w*|Test\w+_Variant)$`)
	found := 0
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") || strings.Contains(path, "internal/house/") {
			return err
		}
		text, err := os.ReadFile(path)
		within := ""
		for line := range strings.Lines(string(text)) {
			if begins := function.FindStringSubmatch(line); begins != nil {
				within = begins[1]
			}
			if runs.MatchString(line) {
				found++
				if strings.HasPrefix(within, "Test") {
					assert.Regexp(t, named, within, "%s: .ci/run has no second mode of the suite: name the test TestConformance…, or …_Variant", path)
				}
			}
		}
		return err
	}))
	require.Greater(t, found, 10)
}
