package house

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestModules(t *testing.T) {
	t.Parallel()

	t.Run("go.work names every module", func(t *testing.T) {
		t.Parallel()
		work, err := os.ReadFile(filepath.Join(root, "go.work"))
		require.NoError(t, err)
		modules := 0
		require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != root {
				// Tools of CI, whose dependencies are not to move those of the project.
				return fs.SkipDir
			}
			if entry.Name() != "go.mod" {
				return nil
			}
			modules++
			dir, err := filepath.Rel(root, filepath.Dir(path))
			if err != nil {
				return err
			}
			if dir = filepath.ToSlash(dir); dir != "." {
				dir = "./" + dir
			}
			require.Regexp(t, `(?m)^\t`+regexp.QuoteMeta(dir)+`$`, string(work), "go.work lacks %s: run go work use %s", dir, dir)
			return nil
		}))
		require.Greater(t, modules, 1)
	})

	t.Run("the command's module has no replace, because go install refuses one", func(t *testing.T) {
		t.Parallel()
		text, err := os.ReadFile(filepath.Join(root, "cmd", "outmill", "go.mod"))
		require.NoError(t, err)
		require.NotRegexp(t, `(?m)^replace\b`, string(text))
	})

	t.Run("no go.sum has a hash of the project itself, which changes with each commit", func(t *testing.T) {
		t.Parallel()
		text, err := os.ReadFile(filepath.Join(root, "cmd", "outmill", "go.sum"))
		require.NoError(t, err)
		require.NotContains(t, string(text), module)
	})
}
