package postgresengine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/outmill/outmill/internal/testenv/proc"
)

const downloader = "github.com/outmill/outmill/internal/testenv/postgresengine/download"

// Download returns the directory with the programs of a release such as
// "17.5.0". The first call on a machine downloads them, 15 MB; calls in other
// processes wait for it.
func Download(ctx context.Context, release string) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "postgres-"+release)
	bin := filepath.Join(dir, "bin")
	if _, err := os.Stat(bin); err == nil {
		return bin, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", fmt.Errorf("postgres: make the download directory: %w", err)
	}
	unlock, err := proc.LockFile(ctx, dir+".lock")
	if err != nil {
		return "", fmt.Errorf("postgres: lock the download directory: %w", err)
	}
	defer unlock()
	if _, err := os.Stat(bin); err == nil {
		return bin, nil
	}
	return bin, download(ctx, release, dir)
}

// download renames at the end, so that dir is either complete or does not exist.
func download(ctx context.Context, release, dir string) error {
	work, err := os.MkdirTemp(filepath.Dir(dir), "download-")
	if err != nil {
		return fmt.Errorf("postgres: make the download directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	// The servers' account must be able to read the files.
	if err := os.Chmod(work, 0o755); err != nil {
		return fmt.Errorf("postgres: make the download directory: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "run", downloader, release, work)
	cmd.WaitDelay = time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("download PostgreSQL %s: %w: %s", release, err, out)
	}
	if err := os.Rename(filepath.Join(work, "postgres"), dir); err != nil {
		return fmt.Errorf("postgres: keep the download: %w", err)
	}
	return nil
}

// cacheDir returns a directory that the servers' account can read. If this process is root,
// that is not root's own cache.
func cacheDir() (string, error) {
	if serverAccount() != nil {
		return "/var/cache/outmill-test", nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("postgres: no directory to keep the download in: %w", err)
	}
	return filepath.Join(cache, "outmill-test"), nil
}
