package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/outmill/outmill/internal/testenv/mysqlengine"
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
	url, err = startMySQLIn(ctx, dir)
	if err != nil {
		return "", errors.Join(err, stopMySQL(context.WithoutCancel(ctx), dir, log))
	}
	log("mysql: ready at %s", url)
	return url, nil
}

func startMySQLIn(ctx context.Context, dir string) (string, error) {
	files, err := filesOf(dir)
	if err != nil {
		return "", err
	}
	e, err := mysqlengine.Prepare(ctx, files)
	if err != nil {
		return "", err
	}
	if err := e.StartDetached(ctx); err != nil {
		return "", err
	}
	return e.URL, os.WriteFile(filepath.Join(files, "url"), []byte(e.URL), 0o600)
}

func stopMySQL(ctx context.Context, dir string, log func(string, ...any)) error {
	return stopServer(ctx, dir, syscall.SIGKILL, log)
}
