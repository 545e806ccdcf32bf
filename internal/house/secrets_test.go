package house

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSecrets(t *testing.T) {
	t.Parallel()
	t.Run("what a test must not find is nothing that an id, a port or a time may contain", func(t *testing.T) {
		t.Parallel()
		// One UUID in some 2,000 contains a given text of four hexadecimal digits.
		refused := regexp.MustCompile(`(?m)\bNot(Contains|Regexp)f?\(.*, "[0-9a-fA-F:.-]{1,11}"(, [^)]*)?\)$`)
		read := 0
		require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			read++
			require.Empty(t, refused.FindAllString(string(text), -1), "%s: use a text with other letters, S3CRET for example", path)
			return nil
		}))
		require.NotZero(t, read)
	})
}
