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

// child is a process that plays a role.
type child struct {
	name  string
	cmd   *exec.Cmd
	stdin io.Closer
	// wanted: its end is no surprise.
	wanted atomic.Bool
	ended  chan struct{}
}

// startChild starts a process that ends with the test, and with this process:
// when its standard input does. One that is stopped hears of neither, but the
// kernel continues the stopped processes of a group, and hangs them up, when
// the parent that was their tie to the session ends: hence the group.
func startChild(t *testing.T, logs, name string, environment []string) *child {
	t.Helper()
	log, err := os.Create(filepath.Join(logs, name+".log"))
	require.NoError(t, err)
	defer log.Close()
	c := &child{name: name, cmd: exec.Command(os.Args[0]), ended: make(chan struct{})}
	// A race ends the child, and that is seen.
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

// retire lets it end in order, and waits for that.
func (c *child) retire() error {
	c.wanted.Store(true)
	_ = c.stdin.Close()
	<-c.ended
	if !c.cmd.ProcessState.Success() {
		return fmt.Errorf("%s did not end in order: %s", c.name, c.cmd.ProcessState)
	}
	return nil
}

func tail(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	const enough = 4000
	return string(text[max(0, len(text)-enough):])
}
