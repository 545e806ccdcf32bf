package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
)

// Daemon starts and ends the server of an engine whose port is chosen before the server starts. Use it from one goroutine at a time.
type Daemon struct {
	// Name begins the errors. Dir has all files of the server.
	Name, Dir string
	// Within limits the time until the server is ready.
	Within time.Duration
	// Line returns the command line, and Ready an error as long as the server is not ready.
	Line  func() []string
	Ready func(ctx context.Context) error
	// ChoosePort has the next start use another port.
	ChoosePort func() error

	// started says that the server has been ready once. Only before that may its port change.
	started bool
	run     *Supervised
}

// Started reports whether the server has been ready once.
func (d *Daemon) Started() bool { return d.started }

// Start starts the server so that it ends with this process, even after a crash, or at End,
// and waits until it is ready. It may be called again after Stop and Kill; the port and the
// data stay the same.
func (d *Daemon) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.Within)
	defer cancel()
	for {
		err := d.startOnce(ctx)
		if err == nil {
			d.started = true
			return nil
		}
		// Another process has taken the port.
		taken := errors.Is(err, ErrEnded) && strings.Contains(err.Error(), "ddress already in use")
		if d.started || !taken || ctx.Err() != nil {
			return fmt.Errorf("%s: %w", d.Name, err)
		}
		if err := d.ChoosePort(); err != nil {
			return err
		}
	}
}

func (d *Daemon) startOnce(ctx context.Context) error {
	if err := d.run.Leave(); err != nil {
		return err
	}
	run, err := d.server().Supervise(ctx)
	if err != nil {
		return err
	}
	d.run = run
	return d.run.AwaitReady(ctx, d.Ready)
}

// Stop asks the server to shut down in order and waits until it has.
func (d *Daemon) Stop(ctx context.Context) error { return d.run.Stop(ctx, syscall.SIGTERM) }

// Kill kills the server, as kill -9 does, and waits for its end.
func (d *Daemon) Kill(ctx context.Context) error { return d.run.Stop(ctx, syscall.SIGKILL) }

// Restart stops the server in order, unless it has ended already, and starts it
// again.
func (d *Daemon) Restart(ctx context.Context) error {
	if err := d.Stop(ctx); err != nil {
		return err
	}
	return d.Start(ctx)
}

// End ends a server of Start, if it still runs, removes its directory, and waits until both
// are done.
func (d *Daemon) End() {
	if d.run == nil {
		_ = os.RemoveAll(d.Dir)
		return
	}
	d.run.End()
	d.run = nil
}

// StartDetached starts the server in the background, so that it outlives this process, and
// waits until it is ready. Its pid is in PidFile.
func (d *Daemon) StartDetached(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, d.Within)
	defer cancel()
	if err := d.server().StartDetached(ctx, d.Ready); err != nil {
		return fmt.Errorf("%s: %w", d.Name, err)
	}
	return nil
}

// PidFile returns the file with the pid of the server.
func (d *Daemon) PidFile() string { return d.server().PidFile() }

// LogFile returns the file with the server's output since its last start.
func (d *Daemon) LogFile() string { return d.server().LogFile() }

func (d *Daemon) server() Server { return Server{Dir: d.Dir, Line: d.Line(), EndSignal: "KILL"} }
