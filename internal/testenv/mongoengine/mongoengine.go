// Package mongoengine finds a MongoDB for tests, or starts the machine's mongod on
// loopback. It is for internal/testenv, for the program engines and for bench.
package mongoengine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	// Dir holds the data, the log and the pid.
	proc.Daemon
	// URL is the URL of the server. It stays the same over restarts.
	URL string

	program string
	flags   []string
	port    int
	// parameters are the parameters to set after each start of the server.
	parameters bson.D
}

// Prepare makes an engine that runs program, a mongod, in dir, which must be empty or not
// exist. The flags are Standalone and any flags of mongod.
func Prepare(program, dir string, flags ...string) (*Engine, error) {
	e := &Engine{program: program, flags: slices.Clone(flags), parameters: bson.D{{Key: "ttlMonitorEnabled", Value: false}}}
	e.Daemon = proc.Daemon{
		Name: "mongodb", Dir: dir, Within: readyWithin, Line: e.commandLine, Ready: e.makeReady, ChoosePort: e.choosePort,
	}
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
	if !e.Started() {
		return nil
	}
	if err := e.makeReady(ctx); err != nil {
		return fmt.Errorf("mongodb: set %s: %w", name, err)
	}
	return nil
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
