// Package mongoengine finds a MongoDB for tests, or starts the machine's mongod on
// loopback. It is for internal/testenv, for the program engines and for bench.
package mongoengine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/outmill/outmill/internal/testenv/proc"
)

// readyWithin limits the wait for the start of a server, which takes a second on an idle
// machine.
const readyWithin = time.Minute

// Engine is a server on loopback: a replica set of one node, unless it has the flag
// Standalone. Its TTL indexes delete nothing until a test switches their monitor on with
// SetParameter. Its files are in one directory. Use it from one goroutine at a time.
type Engine struct {
	// URL is the URL of the server. It stays the same over restarts.
	URL string
	// Dir holds the data, the log and the pid.
	Dir string

	program string
	flags   []string
	port    int
	// parameters are the parameters to set after each start of the server.
	parameters bson.D
	// started says that the server has been ready once. Only before that may its port change.
	started bool
	run     *proc.Supervised
}

// Prepare makes an engine that runs program, a mongod, in dir, which must be empty or not
// exist. The flags are Standalone and any flags of mongod.
func Prepare(program, dir string, flags ...string) (*Engine, error) {
	e := &Engine{Dir: dir, program: program, flags: slices.Clone(flags), parameters: bson.D{{Key: "ttlMonitorEnabled", Value: false}}}
	if err := os.MkdirAll(e.dataDir(), 0o755); err != nil {
		return nil, fmt.Errorf("mongodb: make the data directory: %w", err)
	}
	return e, e.choosePort()
}

// SetParameter sets a parameter of the server, such as transactionLifetimeLimitSeconds,
// also for later restarts. It may be called before the first start and while the server
// runs.
func (e *Engine) SetParameter(ctx context.Context, name string, value any) error {
	e.parameters = append(e.parameters, bson.E{Key: name, Value: value})
	if !e.started {
		return nil
	}
	if err := e.makeReady(ctx); err != nil {
		return fmt.Errorf("mongodb: set %s: %w", name, err)
	}
	return nil
}

// Start starts the server so that it ends with this process, even after a crash, or at End,
// and waits until it is ready. It may be called again after Stop and Kill; the port and the
// data stay the same.
func (e *Engine) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		err := e.startOnce(ctx)
		if err == nil {
			e.started = true
			return nil
		}
		// Another process has taken the port.
		taken := errors.Is(err, proc.ErrEnded) && strings.Contains(err.Error(), "ddress already in use")
		if e.started || !taken || ctx.Err() != nil {
			return fmt.Errorf("mongodb: %w", err)
		}
		if err := e.choosePort(); err != nil {
			return err
		}
	}
}

func (e *Engine) startOnce(ctx context.Context) error {
	if err := e.run.Leave(); err != nil {
		return err
	}
	run, err := e.server().Supervise(ctx)
	if err != nil {
		return err
	}
	e.run = run
	return e.run.AwaitReady(ctx, e.makeReady)
}

// Stop asks the server to shut down in order and waits until it has.
func (e *Engine) Stop(ctx context.Context) error { return e.run.Stop(ctx, syscall.SIGTERM) }

// Kill kills the server, as kill -9 does, and waits for its end.
func (e *Engine) Kill(ctx context.Context) error { return e.run.Stop(ctx, syscall.SIGKILL) }

// Restart stops the server in order, unless it has ended already, and starts it
// again.
func (e *Engine) Restart(ctx context.Context) error {
	if err := e.Stop(ctx); err != nil {
		return err
	}
	return e.Start(ctx)
}

// End ends a server of Start, if it still runs, removes its directory, and waits until both
// are done.
func (e *Engine) End() {
	if e.run == nil {
		_ = os.RemoveAll(e.Dir)
		return
	}
	e.run.End()
	e.run = nil
}

// StartDetached starts the server in the background, so that it outlives this process, and
// waits until it is ready. Its pid is in PidFile.
func (e *Engine) StartDetached(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	if err := e.server().StartDetached(ctx, e.makeReady); err != nil {
		return fmt.Errorf("mongodb: %w", err)
	}
	return nil
}

// PidFile returns the file with the pid of the server.
func (e *Engine) PidFile() string { return e.server().PidFile() }

// LogFile returns the file with the server's output since its last start.
func (e *Engine) LogFile() string { return e.server().LogFile() }

func (e *Engine) server() proc.Server {
	return proc.Server{Dir: e.Dir, Line: e.commandLine(), EndSignal: "KILL"}
}

func (e *Engine) dataDir() string { return filepath.Join(e.Dir, "data") }

func (e *Engine) standalone() bool { return slices.Contains(e.flags, Standalone) }

func (e *Engine) choosePort() error {
	port, err := proc.FreePort()
	if err != nil {
		return fmt.Errorf("mongodb: %w", err)
	}
	e.port = port
	e.URL = e.url()
	return nil
}
