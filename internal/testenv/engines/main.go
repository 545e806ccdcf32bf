// Command engines starts the real engines that the tests can use, and stops
// them again.
//
//	eval "$(go run ./internal/testenv/engines start -dir DIR)"
//	go test ./...
//	go run ./internal/testenv/engines stop -dir DIR
//
// start prints one export line on standard output for each available engine. On standard
// error it reports its progress, and the reason why an engine is not available; that is an
// error only with -require. If the environment already names an engine, or a PostgreSQL or
// Kafka listens at its usual port, start uses it unchanged. The engines that start has
// started stay in the background, with their data and pids in DIR; stop ends only these and
// removes their data.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// startWithin limits the download and the start of an engine.
const startWithin = 6 * time.Minute

const usage = "usage: engines start|stop -dir DIR [-require] [-only NAME]"

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "engines:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("no command: %s", usage)
	}
	flags := flag.NewFlagSet("engines "+args[0], flag.ContinueOnError)
	flags.SetOutput(stderr)
	dir := flags.String("dir", "", "directory for pids, logs and data of the engines")
	require := flags.Bool("require", false, "fail if an engine is not available")
	only := flags.String("only", "", "name of the only engine to start or stop: "+names(engines))
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if *dir == "" {
		return fmt.Errorf("no -dir: %s", usage)
	}
	abs, err := filepath.Abs(*dir)
	if err != nil {
		return fmt.Errorf("-dir %s: %w", *dir, err)
	}
	chosen := engines
	if *only != "" {
		chosen = slices.DeleteFunc(slices.Clone(engines), func(e engine) bool { return e.name != *only })
	}
	if len(chosen) == 0 {
		return fmt.Errorf("-only %s: the engines are %s", *only, names(engines))
	}
	log := func(format string, args ...any) { fmt.Fprintf(stderr, "engines: "+format+"\n", args...) }
	switch args[0] {
	case "start":
		return start(ctx, chosen, abs, *require, stdout, log)
	case "stop":
		return stop(ctx, chosen, abs, log)
	}
	return fmt.Errorf("unknown command %q: %s", args[0], usage)
}

// engine is one kind of engine.
type engine struct {
	name string
	// env names the environment variable with the address of the engine for tests.
	env string
	// start returns the value of env.
	start func(ctx context.Context, dir string, log func(string, ...any)) (string, error)
	stop  func(ctx context.Context, dir string, log func(string, ...any)) error
}

func (e engine) startIn(ctx context.Context, dir string, log func(string, ...any)) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	return e.start(ctx, dir, log)
}

var engines = []engine{postgres, kafka, mongodb, mysql}

func names(engines []engine) string {
	var all []string
	for _, e := range engines {
		all = append(all, e.name)
	}
	return strings.Join(all, ", ")
}

func start(ctx context.Context, engines []engine, dir string, require bool, stdout io.Writer, log func(string, ...any)) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	var missing error
	for _, e := range engines {
		url, err := e.startIn(ctx, filepath.Join(dir, e.name), log)
		if err != nil {
			log("%s is not available: %v", e.name, err)
			missing = fmt.Errorf("%s is required and not available", e.name)
			continue
		}
		fmt.Fprintf(stdout, "export %s='%s'\n", e.env, url)
	}
	if require {
		return missing
	}
	return nil
}

func stop(ctx context.Context, engines []engine, dir string, log func(string, ...any)) error {
	var failed error
	for _, e := range engines {
		if err := e.stop(ctx, filepath.Join(dir, e.name), log); err != nil {
			log("%s was not stopped: %v", e.name, err)
			failed = fmt.Errorf("%s was not stopped", e.name)
		}
	}
	return failed
}
