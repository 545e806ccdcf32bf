package proc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
)

const (
	pidFile   = "pid"
	endedFile = "ended"
)

// Server says how to run a server.
type Server struct {
	// Dir is where it runs and keeps its files. It is removed when the server of
	// Supervise ends.
	Dir string
	// Line is its command line.
	Line []string
	// EndSignal is the one that ends it at once, by its name, such as "KILL".
	EndSignal string
	// Prepare says as whom it runs, with which environment. It may be nil.
	Prepare func(*exec.Cmd)
	// TidyUp is a shell command that runs in Dir before Dir is removed. It may be
	// empty.
	TidyUp string
}

// PidFile is where the pid of the server is.
func (s Server) PidFile() string { return filepath.Join(s.Dir, pidFile) }

// LogFile is where the server's output goes.
func (s Server) LogFile() string { return filepath.Join(s.Dir, "log") }

// StartDetached starts the server in the background, where it outlives this
// process, and calls check until it succeeds or the context ends.
func (s Server) StartDetached(ctx context.Context, check func(context.Context) error) error {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), s.Line[0], s.Line[1:]...)
	if err := s.launch(cmd); err != nil {
		return err
	}
	if err := os.WriteFile(s.PidFile(), []byte(strconv.Itoa(cmd.Process.Pid)+"\n"), 0o600); err != nil {
		return errors.Join(fmt.Errorf("write the pid: %w", err), cmd.Process.Kill())
	}
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if waited := Wait(ctx, poll); waited != nil {
			return notReady(err, s.LogFile())
		}
	}
}

// Supervise starts the server so that it ends with this process, however that
// ends, or at End. It does not wait until it is ready. What an earlier start
// has left in the log is removed.
func (s Server) Supervise(ctx context.Context) (*Supervised, error) {
	for _, name := range []string{pidFile, endedFile} {
		if err := os.Remove(filepath.Join(s.Dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("remove traces of the last start: %w", err)
		}
	}
	if err := os.Truncate(s.LogFile(), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("empty the log: %w", err)
	}
	// The server's life is not bounded by ctx, which is for its start.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "sh", append([]string{"-c", script, "sh"}, s.Line...)...)
	cmd.Env = append(os.Environ(), "DIR="+s.Dir, "END_SIGNAL="+s.EndSignal, "TIDY_UP="+s.TidyUp)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Line[0], err)
	}
	if err := s.launch(cmd); err != nil {
		return nil, err
	}
	return &Supervised{server: s, cmd: cmd, stdin: stdin}, nil
}

func (s Server) launch(cmd *exec.Cmd) error {
	out, err := os.OpenFile(s.LogFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Dir = s.Dir
	cmd.SysProcAttr = OwnSession()
	if s.Prepare != nil {
		s.Prepare(cmd)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return nil
}

// Supervised is a server that ends with this process. Its methods are for one
// goroutine at a time; Stop, Leave and End do nothing on one that is nil.
type Supervised struct {
	server Server
	cmd    *exec.Cmd
	// stdin is open in this process only. When it is collected it is closed, and
	// the server ends: who holds the supervised holds the server.
	stdin io.WriteCloser
}

// script runs a server until standard input ends, which says that this process
// is gone, and removes the server's directory then, unless it was told to leave
// it. A server that a test has stopped is continued, to hear that it is to end.
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
eval "$TIDY_UP" 2>/dev/null
cd /
rm -rf "$DIR"
exit 0
`
