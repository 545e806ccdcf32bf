package proc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// poll is the time between two checks of a server that starts or ends.
const poll = 10 * time.Millisecond

// ErrEnded says that a server has ended before it was ready.
var ErrEnded = errors.New("it has ended")

// AwaitReady calls check until it succeeds, the server ends (ErrEnded), or the context
// ends.
func (s *Supervised) AwaitReady(ctx context.Context, check func(context.Context) error) error {
	for {
		if s.hasEnded() {
			return fmt.Errorf("%w; the end of its log: %s", ErrEnded, LastLines(s.server.LogFile()))
		}
		err := check(ctx)
		if err == nil {
			// Stop needs the pid file.
			_, err = ReadPid(s.server.PidFile())
		}
		if err == nil && !s.hasEnded() {
			return nil
		}
		if waited := Wait(ctx, poll); waited != nil {
			return notReady(err, s.server.LogFile())
		}
	}
}

func notReady(err error, log string) error {
	return fmt.Errorf("not ready in time: %w; the end of its log: %s", err, LastLines(log))
}

// Stop sends a signal that ends the server, and waits for its end. It does nothing if the
// server has ended already.
func (s *Supervised) Stop(ctx context.Context, signal os.Signal) error {
	if s == nil || s.hasEnded() {
		return nil
	}
	pid, err := ReadPid(s.server.PidFile())
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
		if err := Wait(ctx, poll); err != nil {
			return fmt.Errorf("process %d has not ended: %w", pid, err)
		}
	}
	return nil
}

// Leave ends the supervision, and the server if it still runs, and leaves its
// files.
func (s *Supervised) Leave() error {
	if s == nil {
		return nil
	}
	_, err := io.WriteString(s.stdin, "leave\n")
	s.End()
	return err
}

// End ends the server if it still runs, removes its directory and waits for
// that.
func (s *Supervised) End() {
	if s == nil {
		return
	}
	_ = s.stdin.Close()
	_ = s.cmd.Wait()
}

func (s *Supervised) hasEnded() bool {
	_, err := os.Stat(filepath.Join(s.server.Dir, endedFile))
	return err == nil
}
