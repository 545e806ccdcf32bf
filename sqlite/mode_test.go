package sqlite_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/sqlite"
)

func TestOpen_FileMode(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no modes of files")
	}
	modes := func(t *testing.T, path string) (modes []os.FileMode) {
		store, err := sqlite.Open(t.Context(), path, sqlite.Config{EnsureSchema: true}, nil)
		require.NoError(t, err)
		require.NoError(t, store.Append(t.Context(), &outmill.Record{Topic: "orders"}))
		for _, suffix := range []string{"", "-wal", "-shm"} {
			info, err := os.Stat(path + suffix)
			require.NoError(t, err)
			modes = append(modes, info.Mode().Perm())
		}
		require.NoError(t, store.Close())
		return modes
	}

	t.Run("a new file and what belongs to it are for their owner only", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, []os.FileMode{0o600, 0o600, 0o600}, modes(t, filepath.Join(t.TempDir(), "new.db")))
	})

	t.Run("a file that exists keeps its mode", func(t *testing.T) {
		t.Parallel()
		path := filepath.Join(t.TempDir(), "old.db")
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		require.NoError(t, os.Chmod(path, 0o640))
		require.Equal(t, []os.FileMode{0o640, 0o640, 0o640}, modes(t, path))
	})
}
