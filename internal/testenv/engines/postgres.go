package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/outmill/outmill/internal/testenv/postgresengine"
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

func startPostgresOf(ctx context.Context, bin, dir string) (string, error) {
	files, err := filesOf(dir)
	if err != nil {
		return "", err
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
	return stopServer(ctx, dir, postgresengine.Fast.Signal(), log)
}
