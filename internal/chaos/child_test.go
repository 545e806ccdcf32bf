//go:build unix

package chaos_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// child is a process with a role, such as a writer.
type child struct {
	name  string
	cmd   *exec.Cmd
	stdin io.Closer
	// wanted says that the test ends the process, so its end is no fault.
	wanted atomic.Bool
	ended  chan struct{}
	// log is the file with the process's output.
	log string
}

// startChild starts a process that ends when its standard input ends, that is with the test or
// with this process. A stopped process does not notice that. So each has a process group of
// its own: when the parent of an orphaned group ends, the kernel continues the stopped
// processes of the group and sends them SIGHUP.
func startChild(t *testing.T, logs, name string, environment []string) *child {
	t.Helper()
	log, err := os.Create(filepath.Join(logs, name+".log"))
	require.NoError(t, err)
	defer log.Close()
	c := &child{name: name, cmd: exec.Command(os.Args[0]), ended: make(chan struct{}), log: log.Name()}
	// A data race ends the child, and the test notices the end.
	c.cmd.Env = append(append(os.Environ(), "GORACE=halt_on_error=1", envName+"="+name), environment...)
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := c.cmd.StdinPipe()
	require.NoError(t, err)
	c.stdin = stdin
	require.NoError(t, c.cmd.Start())
	go func() {
		defer close(c.ended)
		if err := c.cmd.Wait(); !c.wanted.Load() {
			t.Errorf("%s ended by itself: %v: %s", name, err, tail(log.Name()))
		}
	}()
	t.Cleanup(c.kill)
	return c
}

func (c *child) kill() {
	c.wanted.Store(true)
	_ = c.cmd.Process.Kill()
	<-c.ended
}

func (c *child) signal(t *testing.T, signal os.Signal) {
	t.Helper()
	require.NoError(t, c.cmd.Process.Signal(signal), c.name)
}

// retire stops the process gracefully, and waits for its end.
func (c *child) retire() error {
	c.wanted.Store(true)
	_ = c.stdin.Close()
	<-c.ended
	if !c.cmd.ProcessState.Success() {
		return fmt.Errorf("%s did not stop gracefully: %s: %s", c.name, c.cmd.ProcessState, tail(c.log))
	}
	return nil
}

func tail(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	const enough = 16_000
	return string(text[max(0, len(text)-enough):])
}
