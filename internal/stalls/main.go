// Command stalls runs tests while goroutines stand still for up to 100 ms at places that a seed chooses, as they do on a busy machine. It
// finds tests, and faults of the product, that need luck: a test that waits for a row of the database and then expects a counter, a
// signal that is lost between two statements.
//
//	go run ./internal/stalls -seed 7 ./subscriber ./forwarder      one seed
//	go run ./internal/stalls -runs 5 ./joins                       five seeds, which it prints
//	go run ./internal/stalls -seed 7 ./joins -- -race -run Remote  flags of go test follow --
//	go run ./internal/stalls -C cmd/outmill ./...                  a nested module
//
// One seed stalls the same places again, but not each pass of them, so a failure may need a few runs. Before a test is mended, ask
// whether its bar is a time that a busy machine needs. The checkout is never written: the compiler gets the changed files by -overlay.
// Benchmarks, mutants and tests of the checkout's text are left alone. The pauses leave bubbles of package synctest alone. A test that
// starts processes passes the seed on to them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/outmill/outmill/internal/checkout"
	"github.com/outmill/outmill/internal/stalls/stall"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "stalls:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	flags := flag.NewFlagSet("stalls", flag.ContinueOnError)
	flags.SetOutput(stderr)
	module := flags.String("C", ".", "directory of the module whose packages are tested")
	seed := flags.Uint64("seed", 0, "the first seed; 0 takes a new one, and prints it")
	runs := flags.Int("runs", 1, "number of seeds")
	share := flags.Uint64("share", 20, "share of the statements that stall, in thousandths")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() == 0 || *runs < 1 || *share < 1 || *share > 1000 {
		return errors.New("name packages, such as ./subscriber; -runs is 1 or more, and -share 1 to 1000")
	}
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano()) % 1_000_000
	}
	root, err := checkout.Dir(ctx)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "outmill-stalls-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	overlay, err := overlayOf(root, dir)
	if err != nil {
		return err
	}
	test := testArgs(flags.Args(), overlay)
	var failed []string
	for n := range uint64(*runs) {
		cmd := exec.CommandContext(ctx, "go", test...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = *module, stdout, stderr
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", stall.SeedVariable, *seed+n), fmt.Sprintf("%s=%d", stall.ShareVariable, *share))
		// A child of the tests that outlives them does not hold up the next run.
		cmd.WaitDelay = 10 * time.Second
		verdict := "passed"
		if err := cmd.Run(); err != nil {
			verdict, failed = "FAILED", append(failed, fmt.Sprint(*seed+n))
		}
		if ctx.Err() != nil {
			return fmt.Errorf("stopped: go on with -seed %d", *seed+n)
		}
		fmt.Fprintf(stdout, "seed %d: %s\n", *seed+n, verdict)
	}
	if len(failed) > 0 {
		return fmt.Errorf("the tests failed with the seeds %s of %d", strings.Join(failed, ", "), *runs)
	}
	return nil
}

// testArgs are the arguments of go. What follows -- are flags.
func testArgs(packages []string, overlay string) []string {
	args := []string{"test", "-vet=off", "-count=1", "-timeout=30m", "-overlay=" + overlay}
	if i := slices.Index(packages, "--"); i >= 0 {
		args, packages = append(args, packages[i+1:]...), packages[:i]
	}
	return append(args, packages...)
}

// leftAlone are the directories whose files stay as they are.
var leftAlone = []string{"bench", "internal/house", "internal/mutants", "internal/stalls"}

// overlayOf writes the changed files of the checkout into dir, and returns the name of the file that tells the compiler of them.
func overlayOf(root, dir string) (string, error) {
	replace := map[string]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if entry.IsDir() {
			if name != "." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || slices.Contains(leftAlone, name)) {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		changed, err := withPauses(name, source)
		if err != nil || changed == "" {
			return err
		}
		replace[path] = filepath.Join(dir, fmt.Sprint(len(replace), ".go"))
		return os.WriteFile(replace[path], []byte(changed), 0o600)
	})
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}
