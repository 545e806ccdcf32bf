// Package enginetest has the tests that all engines of internal/testenv pass.
package enginetest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// file names the environment variable with the file into which a child process writes the URL
// and the directory of its server.
const file = "OUTMILL_TEST_CHILD_SERVER"

// EndsWithItsBinary runs the test binary again, with the test named child only, kills it, and
// checks that its server ends and leaves no files. check returns nil while a server answers at
// the URL. The test is skipped if the child starts no server.
func EndsWithItsBinary(t *testing.T, child string, check func(ctx context.Context, url string) error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "server")
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+child+"$") //nolint:gosec // it is this binary
	cmd.Env = append(os.Environ(), file+"="+path)
	require.NoError(t, cmd.Start())
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	told := readWhenWritten(t, path, ended)
	if told == "" {
		t.Skip("skipped: no server can be started")
	}
	url, dir, _ := strings.Cut(told, " ")
	require.NoError(t, check(t.Context(), url))
	require.NoError(t, cmd.Process.Kill())
	<-ended
	require.Eventually(t, func() bool {
		_, err := os.Stat(dir)
		return os.IsNotExist(err)
	}, time.Minute, 10*time.Millisecond)
	require.Error(t, check(t.Context(), url))
}

// readWhenWritten waits for the file and returns its text, or "" if the child ends before.
func readWhenWritten(t *testing.T, path string, ended <-chan struct{}) string {
	t.Helper()
	var told []byte
	require.Eventually(t, func() bool {
		select {
		case <-ended:
			return true
		default:
		}
		var err error
		told, err = os.ReadFile(path) //nolint:gosec // it is in the directory of the test
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	return string(told)
}

// IsChild skips the test, unless EndsWithItsBinary runs it.
func IsChild(t *testing.T) {
	t.Helper()
	if os.Getenv(file) == "" {
		t.Skip("skipped: another test runs this one in a process of its own")
	}
}

// Tell tells EndsWithItsBinary of the server, and waits until the child is killed.
func Tell(t *testing.T, url, dir string) {
	t.Helper()
	path := os.Getenv(file)
	require.NoError(t, os.WriteFile(path+".new", []byte(url+" "+dir), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
	<-t.Context().Done()
}
