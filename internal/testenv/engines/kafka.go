package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/outmill/outmill/internal/testenv/kafkaengine"
	"github.com/outmill/outmill/internal/testenv/proc"
)

var kafka = engine{name: "kafka", env: kafkaengine.EnvURL, start: startKafka, stop: stopKafka}

func startKafka(ctx context.Context, dir string, log func(string, ...any)) (string, error) {
	if addr, ok := runningKafka(ctx, dir); ok {
		log("kafka: runs already at %s", addr)
		return addr, nil
	}
	addrs, err := kafkaengine.Find(ctx)
	if err != nil {
		return "", err
	}
	if addrs != nil {
		log("kafka: found at %s", strings.Join(addrs, ","))
		return strings.Join(addrs, ","), nil
	}
	log("kafka: starting Apache Kafka %s (downloads 44 MB the first time)", kafkaengine.Version)
	if err := stopKafka(ctx, dir, log); err != nil {
		return "", fmt.Errorf("tidy up an earlier start: %w", err)
	}
	e, err := kafkaengine.Prepare(ctx, dir)
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	if err := e.StartDetached(ctx); err != nil {
		return "", errors.Join(err, stopKafka(context.WithoutCancel(ctx), dir, log))
	}
	if err := os.WriteFile(addrFile(dir), []byte(e.Addr), 0o600); err != nil {
		return "", errors.Join(err, stopKafka(ctx, dir, log))
	}
	log("kafka: ready at %s", e.Addr)
	return e.Addr, nil
}

// runningKafka returns the broker that an earlier start left in dir.
func runningKafka(ctx context.Context, dir string) (string, bool) {
	addr, err := os.ReadFile(addrFile(dir))
	if err != nil || kafkaengine.Check(ctx, []string{string(addr)}) != nil {
		return "", false
	}
	return string(addr), true
}

func stopKafka(ctx context.Context, dir string, log func(string, ...any)) error {
	pid, err := proc.ReadPid(filepath.Join(dir, "pid"))
	if errors.Is(err, os.ErrNotExist) {
		return os.RemoveAll(dir)
	}
	if err != nil {
		return err
	}
	// The pid may belong to another process by now, so only a process with our configuration
	// is ended.
	p := process{pid: pid, mark: dir, signal: syscall.SIGTERM}
	if err := p.end(ctx); err != nil {
		return err
	}
	log("kafka: stopped")
	return os.RemoveAll(dir)
}

func addrFile(dir string) string { return filepath.Join(dir, "addr") }
