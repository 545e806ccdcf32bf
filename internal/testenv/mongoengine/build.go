package mongoengine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/outmill/outmill/internal/testenv/proc"
)

// Version is the release of SecantusDB that Build builds.
const Version = "0.5.3-beta.196"

// Build has cargo build SecantusDB into the user's cache, which takes about ten
// minutes, unless it is there; calls in other processes wait for it. A build
// that was interrupted goes on where it was. It logs how far it is once a
// minute.
func Build(ctx context.Context, log func(format string, args ...any)) (Program, error) {
	root, err := buildDir()
	if err != nil {
		return Program{}, err
	}
	if isThere(built(root)) {
		return built(root), nil
	}
	cargo, err := findCargo()
	if err != nil {
		return Program{}, err
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return Program{}, fmt.Errorf("secantusdb: make the build directory: %w", err)
	}
	unlock, err := proc.LockFile(ctx, root+".lock")
	if err != nil {
		return Program{}, fmt.Errorf("secantusdb: lock the build directory: %w", err)
	}
	defer unlock()
	if isThere(built(root)) {
		return built(root), nil
	}
	log("mongodb: building SecantusDB %s with %s, about ten minutes, once for this machine", Version, cargo)
	return built(root), build(ctx, cargo, root, log)
}

// build leaves the program whole or not at all: cargo moves it to its place at
// the end.
func build(ctx context.Context, cargo, root string, log func(string, ...any)) error {
	objects, output := filepath.Join(root, "target"), filepath.Join(root, "log")
	out, err := os.Create(output)
	if err != nil {
		return fmt.Errorf("secantusdb: make the log of the build: %w", err)
	}
	defer out.Close()
	cmd := exec.CommandContext(ctx, cargo, "install", "secantus-mdb", "--version", Version,
		"--locked", "--ignore-rust-version", "--root", root)
	// Optimization of the whole program would double the time.
	cmd.Env = append(os.Environ(), "CARGO_PROFILE_RELEASE_LTO=off", "CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16",
		"CARGO_TARGET_DIR="+objects, "CARGO_TERM_COLOR=never", "CARGO_TERM_PROGRESS_WHEN=never")
	cmd.Stdout, cmd.Stderr = out, out
	proc.EndWithChildren(cmd)
	err = runAndTell(cmd, output, log)
	switch {
	case err == nil:
		return os.RemoveAll(objects)
	case ctx.Err() != nil:
		return fmt.Errorf("build SecantusDB, which goes on where it was the next time: %w", ctx.Err())
	}
	return fmt.Errorf("build SecantusDB: %w; the end of its log: %s", err, proc.LastLines(output))
}

func runAndTell(cmd *exec.Cmd, output string, log func(string, ...any)) error {
	began := time.Now()
	tell := time.NewTicker(time.Minute)
	defer tell.Stop()
	done := make(chan error, 1)
	go func() { done <- cmd.Run() }()
	for {
		select {
		case err := <-done:
			return err
		case <-tell.C:
			line := proc.LastLine([]byte(proc.LastLines(output)))
			log("mongodb: still building SecantusDB after %s: %s", time.Since(began).Round(time.Second), line)
		}
	}
}

func findCargo() (string, error) {
	if file, err := exec.LookPath("cargo"); err == nil {
		return file, nil
	}
	bin, err := cargoBin()
	if err != nil {
		return "", err
	}
	file, err := exec.LookPath(filepath.Join(bin, "cargo"))
	if err != nil {
		return "", errors.New("no cargo to build SecantusDB with")
	}
	return file, nil
}

func buildDir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("secantusdb: no directory to keep the build in: %w", err)
	}
	return filepath.Join(cache, "outmill-test", "secantusdb-"+Version), nil
}

// built is the program where cargo install puts it.
func built(root string) Program {
	return Program{Path: filepath.Join(root, "bin", "secantusd-rs"), Secantus: true}
}

func isThere(p Program) bool {
	_, err := os.Stat(p.Path)
	return err == nil
}
