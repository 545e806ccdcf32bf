package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/outmill/outmill/internal/testenv/mysqlengine"
	"github.com/outmill/outmill/internal/testenv/proc"
)

var mysql = engine{name: "mysql", env: mysqlengine.EnvURL, start: startMySQL, stop: stopMySQL}

func startMySQL(ctx context.Context, dir string, log func(string, ...any)) (string, error) {
	if url, err := os.ReadFile(filepath.Join(dir, "url")); err == nil && mysqlengine.Check(ctx, string(url)) == nil {
		log("mysql: runs already at %s", url)
		return string(url), nil
	}
	url, err := mysqlengine.Find(ctx)
	if err != nil {
		return "", err
	}
	if url != "" {
		log("mysql: found")
		return url, nil
	}
	if err := stopMySQL(ctx, dir, log); err != nil {
		return "", fmt.Errorf("tidy up an earlier start: %w", err)
	}
	log("mysql: starting MariaDB")
	e, err := mysqlengine.Prepare(ctx, dir)
	if err == nil {
		err = e.StartDetached(ctx)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "url"), []byte(e.URL), 0o600)
	}
	if err != nil {
		return "", errors.Join(err, stopMySQL(context.WithoutCancel(ctx), dir, log))
	}
	log("mysql: ready at %s", e.URL)
	return e.URL, nil
}

func stopMySQL(ctx context.Context, dir string, log func(string, ...any)) error {
	pid, err := proc.ReadPid(filepath.Join(dir, "pid"))
	if errors.Is(err, os.ErrNotExist) {
		return os.RemoveAll(dir)
	}
	if err != nil {
		return err
	}
	p := process{pid: pid, mark: dir, signal: syscall.SIGKILL}
	if err := p.end(ctx); err != nil {
		return err
	}
	log("mysql: stopped")
	return os.RemoveAll(dir)
}
