package house

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDocs_Imports keeps a reader from guessing where a name of an example comes from.
func TestDocs_Imports(t *testing.T) {
	t.Parallel()
	packages := importPaths(t)
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)```go\n(.*?)```")
	qualifier := regexp.MustCompile(`(?:^|[^\w."/])([a-z]\w*)\.[A-Z]`)
	checked := 0
	for _, page := range append(pages, filepath.Join(root, "README.md")) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, code := range block.FindAllStringSubmatch(string(text), -1) {
			for _, used := range qualifier.FindAllStringSubmatch(code[1], -1) {
				path, ours := packages[used[1]]
				if !ours {
					continue
				}
				checked++
				assert.Regexp(t, regexp.QuoteMeta(path)+`(?:[^\w/]|$)`, code[1],
					"%s: a block of code uses %s and does not name its path", page, used[1])
			}
		}
	}
	require.NotZero(t, checked)
}

// importPaths returns the import path of each public package by its name.
func importPaths(t *testing.T) map[string]string {
	t.Helper()
	const module = "github.com/outmill/outmill"
	paths := map[string]string{"outmill": module}
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		name := entry.Name()
		private := slices.Contains([]string{"internal", "bench", "cmd", "testdata"}, name)
		if path != root && (private || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")) {
			return filepath.SkipDir
		}
		files, err := filepath.Glob(filepath.Join(path, "*.go"))
		if err != nil || len(files) == 0 || path == root {
			return err
		}
		relative, err := filepath.Rel(root, path)
		paths[name] = module + "/" + filepath.ToSlash(relative)
		return err
	}))
	return paths
}
