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
	// Dir is the working directory of the server, with its files. It is removed when the
	// server of Supervise ends.
	Dir string
	// Line is its command line.
	Line []string
	// EndSignal is the name of the signal that ends the server at once, such as "KILL".
	EndSignal string
	// Prepare sets the user and the environment of the server. It may be nil.
	Prepare func(*exec.Cmd)
	// TidyUp is a shell command that runs in Dir before Dir is removed. It may be
	// empty.
	TidyUp string
}

// PidFile returns the file with the pid of the server.
func (s Server) PidFile() string { return filepath.Join(s.Dir, pidFile) }

// LogFile returns the file with the server's output.
func (s Server) LogFile() string { return filepath.Join(s.Dir, "log") }

// StartDetached starts the server in the background, so that it outlives this process, and
// calls check until it succeeds or the context ends.
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

// Supervise starts the server so that it ends with this process, even after a crash, or at
// End. It does not wait until the server is ready. It removes the log of an earlier start.
func (s Server) Supervise(ctx context.Context) (*Supervised, error) {
	for _, name := range []string{pidFile, endedFile} {
		if err := os.Remove(filepath.Join(s.Dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("remove traces of the last start: %w", err)
		}
	}
	if err := os.Truncate(s.LogFile(), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("empty the log: %w", err)
	}
	// The server must outlive ctx, which limits only its start.
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

// Supervised is a server that ends with this process. Use it from one goroutine at a time.
// On a nil Supervised, Stop, Leave and End do nothing.
type Supervised struct {
	server Server
	cmd    *exec.Cmd
	// stdin is open only in this process. The garbage collector closes it, which ends the
	// server, so keep the Supervised as long as the server is needed.
	stdin io.WriteCloser
}

// script runs a server until standard input ends, which means that this process has ended.
// Then it removes the server's directory, unless Leave has told it not to. It continues a
// server that a test has stopped, so that the server receives the end signal.
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
