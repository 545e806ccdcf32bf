package mongoengine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
)

// Flags that both kinds of server understand here. Others are passed on as they
// are, and are those of one kind.
const (
	// Standalone makes a server that is no replica set.
	Standalone = "--standalone"
	// SyncOnCommit makes SecantusDB keep each commit over kill -9. MongoDB does so
	// where a write concern asks for it.
	SyncOnCommit = "--sync-on-commit"
)

// The names of the replica sets that servers of this package are.
const (
	secantusSet = "secantus"
	mongodSet   = "outmill"
)

// Program is the file of a server: mongod, or secantusd-rs, which speaks
// MongoDB's protocol.
type Program struct {
	// Path is where the file is.
	Path string
	// Secantus is true for secantusd-rs.
	Secantus bool
}

// ErrNoProgram says that the machine has neither mongod nor secantusd-rs.
var ErrNoProgram = errors.New("neither mongod nor secantusd-rs is on this machine")

// FindProgram returns the machine's mongod, else its secantusd-rs: that on PATH,
// in cargo's directory, or in the cache that Build fills. The error is
// ErrNoProgram where there is none that runs.
func FindProgram(ctx context.Context) (Program, error) {
	for _, p := range candidates() {
		// A mongod may be there and not run, on a processor that is too old.
		if exec.CommandContext(ctx, p.Path, "--version").Run() == nil {
			return p, nil
		}
	}
	if err := ctx.Err(); err != nil {
		return Program{}, err
	}
	return Program{}, ErrNoProgram
}

func candidates() []Program {
	var all []Program
	if file, err := exec.LookPath("mongod"); err == nil {
		all = append(all, Program{Path: file})
	}
	const secantus = "secantusd-rs"
	if file, err := exec.LookPath(secantus); err == nil {
		all = append(all, Program{Path: file, Secantus: true})
	}
	if bin, err := cargoBin(); err == nil {
		all = append(all, Program{Path: filepath.Join(bin, secantus), Secantus: true})
	}
	if root, err := buildDir(); err == nil {
		all = append(all, built(root))
	}
	return all
}

// cargoBin is where cargo puts programs unless it is told otherwise, and where
// it is itself.
func cargoBin() (string, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find cargo's directory: %w", err)
	}
	return filepath.Join(home, ".cargo", "bin"), nil
}

// commandLine listens on loopback only.
func (p Program) commandLine(data string, port int, flags []string) []string {
	if p.Secantus {
		line := []string{p.Path, "--host", "127.0.0.1", "--port", strconv.Itoa(port), "--storage-path", data,
			"--cache-size", "512M", "--log-file-max", "8MB", "--enable-test-commands"}
		return append(line, flags...)
	}
	line := []string{p.Path, "--bind_ip", "127.0.0.1", "--port", strconv.Itoa(port), "--dbpath", data,
		"--wiredTigerCacheSizeGB", "0.5", "--setParameter", "enableTestCommands=1", "--nounixsocket",
		// Set later it would count after a minute, which the monitor has begun to sleep.
		"--setParameter", "ttlMonitorSleepSecs=1"}
	if !slices.Contains(flags, Standalone) {
		line = append(line, "--replSet", mongodSet)
	}
	ours := func(flag string) bool { return flag == Standalone || flag == SyncOnCommit }
	return append(line, slices.DeleteFunc(slices.Clone(flags), ours)...)
}

func (p Program) url(port int, standalone bool) string {
	address := "mongodb://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) + "/"
	switch {
	case standalone:
		return address + "?directConnection=true"
	case p.Secantus:
		return address + "?replicaSet=" + secantusSet
	}
	return address + "?replicaSet=" + mongodSet
}
