package house

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEnglish(t *testing.T) {
	t.Parallel()
	t.Run("does without words that readers have to look up", func(t *testing.T) {
		t.Parallel()
		// This file contains the words, so the walk skips it.
		refused := regexp.MustCompile(`\b(whoever|anew|lest|meanwhile)\b`)
		read := 0
		require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Base(path) == "english_test.go" ||
				!slices.Contains([]string{".go", ".md", ".sql", ".yml"}, filepath.Ext(path)) {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			read++
			require.Empty(t, refused.FindAllString(strings.ToLower(string(text)), -1), "%s: write a plainer word", path)
			return nil
		}))
		require.NotZero(t, read)
	})
}
