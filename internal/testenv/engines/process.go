package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/outmill/outmill/internal/testenv/proc"
)

// process is a process that an earlier run of this program has started.
type process struct {
	pid int
	// mark is a part of its command line. It distinguishes the process from a later one with
	// the same pid.
	mark string
	// signal asks it to end.
	signal os.Signal
}

// grace is how long a process may take to end before it is killed.
const grace = 20 * time.Second

// end asks the process to end, and kills it if it has not ended within grace.
func (p process) end(ctx context.Context) error {
	for _, signal := range []os.Signal{p.signal, os.Kill} {
		runs, err := p.runs(ctx)
		if err != nil || !runs {
			return err
		}
		if err := p.send(signal); err != nil {
			return err
		}
		if gone, err := p.gone(ctx, grace); err != nil || gone {
			return err
		}
	}
	return fmt.Errorf("process %d has not ended", p.pid)
}

func (p process) send(signal os.Signal) error {
	handle, err := os.FindProcess(p.pid)
	if err != nil {
		return fmt.Errorf("find process %d: %w", p.pid, err)
	}
	defer func() { _ = handle.Release() }()
	if err := handle.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("end process %d: %w", p.pid, err)
	}
	return nil
}

func (p process) gone(ctx context.Context, within time.Duration) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	for {
		runs, err := p.runs(ctx)
		if err != nil || !runs {
			return !runs, err
		}
		select {
		case <-ctx.Done():
			return false, nil
		case <-poll.C:
		}
	}
}

// runs reads the command line of the process, from /proc if it exists, otherwise with ps.
func (p process) runs(ctx context.Context) (bool, error) {
	pid := strconv.Itoa(p.pid)
	if _, err := os.Stat("/proc/self/cmdline"); err == nil {
		line, err := os.ReadFile("/proc/" + pid + "/cmdline")
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
			return false, nil
		}
		return strings.Contains(string(line), p.mark), err
	}
	line, err := exec.CommandContext(context.WithoutCancel(ctx), "ps", "-ww", "-o", "command=", "-p", pid).Output()
	var none *exec.ExitError
	if errors.As(err, &none) {
		return false, nil
	}
	return strings.Contains(string(line), p.mark), err
}

// filesOf makes another directory for the files of a server, to which dir becomes a link: a server that runs as another user may have
// no access to dir.
func filesOf(dir string) (files string, err error) {
	files, err = os.MkdirTemp("", "outmill-"+filepath.Base(dir)+"-")
	if err != nil {
		return "", fmt.Errorf("make a directory for the server: %w", err)
	}
	if err := os.Symlink(files, dir); err != nil {
		return "", errors.Join(fmt.Errorf("link to the server's directory: %w", err), os.RemoveAll(files))
	}
	return files, nil
}

// stopServer ends the server whose files filesOf has made, and removes them.
func stopServer(ctx context.Context, dir string, signal os.Signal, log func(string, ...any)) error {
	files, err := os.Readlink(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	pid, err := proc.ReadPid(filepath.Join(files, "pid"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err == nil {
		// The pid may belong to another process by now, so only a process with our files is ended.
		p := process{pid: pid, mark: files, signal: signal}
		if err := p.end(ctx); err != nil {
			return err
		}
		log("%s: stopped", filepath.Base(dir))
	}
	return errors.Join(os.RemoveAll(files), os.Remove(dir))
}
