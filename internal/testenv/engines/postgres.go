package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/outmill/outmill/internal/testenv/postgresengine"
	"github.com/outmill/outmill/internal/testenv/proc"
)

var postgres = engine{name: "postgres", env: postgresengine.EnvURL, start: startPostgres, stop: stopPostgres}

func startPostgres(ctx context.Context, dir string, log func(string, ...any)) (string, error) {
	if url, ok := runningPostgres(ctx, dir); ok {
		log("postgres: runs already at %s", url)
		return url, nil
	}
	url, err := postgresengine.Find(ctx)
	if err != nil {
		return "", err
	}
	if url != "" {
		log("postgres: found")
		return url, nil
	}
	if err := stopPostgres(ctx, dir, log); err != nil {
		return "", fmt.Errorf("tidy up an earlier start: %w", err)
	}
	bin, err := postgresengine.Binaries(ctx)
	if err != nil {
		return "", err
	}
	log("postgres: starting that of %s", bin)
	url, err = startPostgresOf(ctx, bin, dir)
	if err != nil {
		return "", errors.Join(err, stopPostgres(context.WithoutCancel(ctx), dir, log))
	}
	log("postgres: ready at %s", url)
	return url, nil
}

// startPostgresOf keeps the server's files in another directory and links to them, because
// a server that runs as another user may have no access to dir.
func startPostgresOf(ctx context.Context, bin, dir string) (string, error) {
	files, err := os.MkdirTemp("", "outmill-postgres-")
	if err != nil {
		return "", fmt.Errorf("make a directory for the server: %w", err)
	}
	if err := os.Symlink(files, dir); err != nil {
		return "", errors.Join(fmt.Errorf("link to the server's directory: %w", err), os.RemoveAll(files))
	}
	e, err := postgresengine.Prepare(ctx, bin, files)
	if err != nil {
		return "", err
	}
	if err := e.StartDetached(ctx); err != nil {
		return "", err
	}
	return e.URL, os.WriteFile(filepath.Join(files, "url"), []byte(e.URL), 0o600)
}

// runningPostgres returns the server that an earlier start left in dir.
func runningPostgres(ctx context.Context, dir string) (string, bool) {
	url, err := os.ReadFile(filepath.Join(dir, "url"))
	if err != nil || postgresengine.Check(ctx, string(url)) != nil {
		return "", false
	}
	return string(url), true
}

func stopPostgres(ctx context.Context, dir string, log func(string, ...any)) error {
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
		// The pid may belong to another process by now, so only a process with our data directory
		// is ended.
		p := process{pid: pid, mark: files, signal: postgresengine.Fast.Signal()}
		if err := p.end(ctx); err != nil {
			return err
		}
		log("postgres: stopped")
	}
	return errors.Join(os.RemoveAll(files), os.Remove(dir))
}
