package postgresengine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/outmill/outmill/internal/testenv/proc"
)

const (
	pidFile   = "pid"
	endedFile = "ended"
)

// errEnded says that a server has ended before it was ready.
var errEnded = errors.New("it has ended")

// supervised is a server that ends with this process.
type supervised struct {
	dir, log string
	cmd      *exec.Cmd
	// stdin is open in this process only. When it is collected it is closed, and
	// the server ends: who holds the supervised holds the server.
	stdin io.WriteCloser
}

// script runs a server until standard input ends, which says that this process
// is gone, and removes the server's directory then, unless it was told to leave
// it. A server that a test has stopped is continued, to hear that it is to end;
// SysV memory of one that was killed would stay until the machine restarts.
const script = `
(
	"$@" & child=$!
	echo $child >pid.new; mv pid.new pid
	wait $child
	echo $? >ended.new; mv ended.new ended
) &
job=$!
read -r word
until [ -e pid ]; do sleep 0.01; done
pid=$(cat pid)
tries=0
while ! [ -e ended ]; do
	[ $tries -eq 0 ] && { kill -$END_SIGNAL $pid; kill -CONT $pid; }
	[ $tries -eq 300 ] && kill -KILL $pid
	tries=$((tries + 1))
	sleep 0.02
done 2>/dev/null
wait $job
[ "$word" = leave ] && exit 0
[ -e data/postmaster.pid ] && ipcrm -m $(sed -n 7p data/postmaster.pid | awk '{print $2}') 2>/dev/null
cd /
rm -rf "$DIR"
exit 0
`

// supervise starts a server whose files are in dir. The signal is the one that
// ends it at once, by its name.
func supervise(ctx context.Context, dir, log, signal string, line []string) (*supervised, error) {
	for _, name := range []string{pidFile, endedFile} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("remove traces of the last start: %w", err)
		}
	}
	// The server's life is not bounded by ctx, which is for its start.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "sh", append([]string{"-c", script, "sh"}, line...)...)
	cmd.Env = append(os.Environ(), "DIR="+dir, "END_SIGNAL="+signal)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", line[0], err)
	}
	if err := launch(cmd, dir, log); err != nil {
		return nil, err
	}
	return &supervised{dir: dir, log: log, cmd: cmd, stdin: stdin}, nil
}

// empty removes what an earlier start has written to a log.
func empty(log string) error {
	if err := os.Truncate(log, 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("empty the log: %w", err)
	}
	return nil
}

// launch starts a command as the account of servers, in dir.
func launch(cmd *exec.Cmd, dir, log string) error {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	asAccount(cmd, dir)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return nil
}

// awaitReady calls check until it succeeds, the server ends or the context
// does.
func (s *supervised) awaitReady(ctx context.Context, check func(context.Context) error) error {
	for {
		if s.hasEnded() {
			return fmt.Errorf("%w; the end of its log: %s", errEnded, proc.LastLines(s.log))
		}
		err := check(ctx)
		if err == nil && !s.hasEnded() {
			return nil
		}
		if waited := wait(ctx, poll); waited != nil {
			return fmt.Errorf("not ready in time: %w; the end of its log: %s", err, proc.LastLines(s.log))
		}
	}
}

// signal sends a signal that ends the server and waits for its end.
func (s *supervised) signal(ctx context.Context, signal syscall.Signal) error {
	if s == nil || s.hasEnded() {
		return nil
	}
	pid, err := proc.ReadPid(filepath.Join(s.dir, pidFile))
	if err != nil {
		return err
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	defer func() { _ = process.Release() }()
	if err := process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end process %d: %w", pid, err)
	}
	for !s.hasEnded() {
		if err := wait(ctx, poll); err != nil {
			return fmt.Errorf("process %d has not ended: %w", pid, err)
		}
	}
	return nil
}

// leave ends the supervision, and the server if it still runs, and leaves its
// files.
func (s *supervised) leave() error {
	if s == nil {
		return nil
	}
	_, err := io.WriteString(s.stdin, "leave\n")
	s.end()
	return err
}

// end ends the server, removes its files, and waits for that.
func (s *supervised) end() {
	_ = s.stdin.Close()
	_ = s.cmd.Wait()
}

func (s *supervised) hasEnded() bool {
	_, err := os.Stat(filepath.Join(s.dir, endedFile))
	return err == nil
}
