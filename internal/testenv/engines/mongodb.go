package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/outmill/outmill/internal/testenv/mongoengine"
	"github.com/outmill/outmill/internal/testenv/proc"
)

var mongodb = engine{name: "mongodb", env: mongoengine.EnvURL, start: startMongoDB, stop: stopMongoDB}

func startMongoDB(ctx context.Context, dir string, log func(string, ...any)) (string, error) {
	if url, ok := runningMongoDB(ctx, dir); ok {
		log("mongodb: runs already at %s", url)
		return url, nil
	}
	url, err := mongoengine.Find(ctx)
	if err != nil {
		return "", err
	}
	if url != "" {
		log("mongodb: found")
		return url, nil
	}
	if err := stopMongoDB(ctx, dir, log); err != nil {
		return "", fmt.Errorf("tidy up an earlier start: %w", err)
	}
	program, err := mongoengine.FindProgram(ctx)
	if err != nil {
		return "", err
	}
	log("mongodb: starting %s", program)
	url, err = startMongoDBOf(ctx, program, dir)
	if err != nil {
		return "", errors.Join(err, stopMongoDB(context.WithoutCancel(ctx), dir, log))
	}
	log("mongodb: ready at %s", url)
	return url, nil
}

func startMongoDBOf(ctx context.Context, program, dir string) (string, error) {
	e, err := mongoengine.Prepare(program, dir)
	if err != nil {
		return "", err
	}
	if err := e.StartDetached(ctx); err != nil {
		return "", err
	}
	return e.URL, os.WriteFile(filepath.Join(dir, "url"), []byte(e.URL), 0o600)
}

// runningMongoDB returns the server that an earlier start left in dir.
func runningMongoDB(ctx context.Context, dir string) (string, bool) {
	url, err := os.ReadFile(filepath.Join(dir, "url"))
	if err != nil || mongoengine.Check(ctx, string(url)) != nil {
		return "", false
	}
	return string(url), true
}

func stopMongoDB(ctx context.Context, dir string, log func(string, ...any)) error {
	pid, err := proc.ReadPid(filepath.Join(dir, "pid"))
	if errors.Is(err, os.ErrNotExist) {
		return os.RemoveAll(dir)
	}
	if err != nil {
		return err
	}
	// The pid may belong to another process by now, so only a process with our data directory
	// is ended. The data is not needed any more, so it is killed without a shutdown.
	p := process{pid: pid, mark: dir, signal: syscall.SIGKILL}
	if err := p.end(ctx); err != nil {
		return err
	}
	log("mongodb: stopped")
	return os.RemoveAll(dir)
}
