//go:build unix

package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
)

// typed runs the built tool on a terminal, answers its question, and returns the exit code
// and what the terminal showed.
func typed(t *testing.T, env []string, answer string, args ...string) (code int, shown string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(append(os.Environ(), "TERM=xterm"), env...)
	screen, err := pty.Start(cmd)
	require.NoError(t, err)
	defer screen.Close()
	var all bytes.Buffer
	buffer := make([]byte, 4096)
	for answered := false; ; {
		n, err := screen.Read(buffer)
		all.Write(buffer[:n])
		if !answered && bytes.Contains(all.Bytes(), []byte("[y/N]")) {
			answered = true
			_, writeErr := io.WriteString(screen, answer)
			require.NoError(t, writeErr)
		}
		if err != nil {
			// Linux ends a terminal with EIO, others with EOF.
			break
		}
	}
	_ = cmd.Wait()
	require.NoError(t, ctx.Err(), all.String())
	return cmd.ProcessState.ExitCode(), all.String()
}

func TestTerminal(t *testing.T) {
	t.Parallel()

	t.Run("on a terminal a large change asks, and only a yes goes on", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.register(t, "", "orders")
		w.append(t, orders(150)...)
		w.kill(t, "", "orders", "timeout")
		code, shown := typed(t, nil, "n\n", "requeue", w.url)
		require.Equal(t, exitFailed, code, shown)
		require.Contains(t, shown, "This would requeue more than 100 dead records of "+w.url+". Continue? [y/N]")
		require.Contains(t, shown, "nothing was changed")
		require.Equal(t, 150, w.statusOf(t, "default", "orders").Dead)

		code, shown = typed(t, nil, "y\n", "requeue", w.url)
		require.Equal(t, exitOK, code, shown)
		require.Contains(t, shown, "150 records requeued.")
		require.Zero(t, w.statusOf(t, "default", "orders").Dead)

		code, shown = typed(t, nil, "y\n", "groups", "drop", w.url, "default")
		require.Equal(t, exitOK, code, shown)
		require.Contains(t, shown, "it gives back 150 to the first group that registers for their topic, and deletes 0: "+
			"0 not delivered but of topics that another group reads, 0 dead, 0 processed. Continue? [y/N]")
		require.Contains(t, shown, "150 records given back, 0 records deleted")
	})

	t.Run("a terminal gets a bold header, unless NO_COLOR is set", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.append(t, orders(1)...)
		for env, bold := range map[string]bool{"X=1": true, "NO_COLOR=1": false, "TERM=dumb": false} {
			code, shown := typed(t, []string{env}, "", "status", w.url)
			require.Equal(t, exitOK, code, shown)
			require.Equal(t, bold, bytes.Contains([]byte(shown), []byte("\x1b[1mGROUP")), "%s: %q", env, shown)
		}
	})

	t.Run("on a terminal publish does not wait for a payload, but names the flag for it", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		code, shown := typed(t, nil, "", "publish", w.url, "--topic", "orders")
		require.Equal(t, exitUsage, code, shown)
		require.Contains(t, shown, "--payload TEXT")
	})
}
