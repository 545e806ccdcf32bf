// Command switched runs the go command on a checkout in which package mongo is the store on the engine, as after the switch that
// docs/mongodb-next.md plans:
//
//	go run ./mongo/internal/next/switched test -run Tx ./mongo
//	go run ./mongo/internal/next/switched test -C bench -vet=off .
//
// It reads from the page which tests of package mongo stay, and changes no file.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/outmill/outmill/internal/checkout"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "switched:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("want the arguments of the go command, such as test ./postgres")
	}
	root, err := checkout.Dir(ctx)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "switched")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	overlay, err := write(root, scratch)
	if err != nil {
		return err
	}
	first := args[:1]
	if len(args) > 2 && args[1] == "-C" {
		first = args[:3] // the go command wants it first
	}
	all := slices.Concat(first, []string{"-overlay=" + overlay}, args[len(first):])
	command := exec.CommandContext(ctx, "go", all...) //nolint:gosec // its purpose
	command.Stdout, command.Stderr = os.Stdout, os.Stderr
	return command.Run()
}

const (
	plan     = "docs/mongodb-next.md"
	old      = "mongo"
	newStore = "mongo/internal/next/store"
)

// write writes the overlay into a directory, and returns its path.
func write(root, scratch string) (string, error) {
	page, err := os.ReadFile(filepath.Join(root, plan)) //nolint:gosec // of the checkout
	if err != nil {
		return "", err
	}
	stays := staying(string(page))
	replace := map[string]string{}
	files, err := filepath.Glob(filepath.Join(root, old, "*.go"))
	if err != nil {
		return "", err
	}
	for _, file := range files {
		if !stays[filepath.Base(file)] {
			replace[file] = ""
		}
	}
	for _, from := range []string{newStore, newStore + "/testdata"} {
		if err := take(root, from, scratch, replace); err != nil {
			return "", err
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(scratch, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}

// take has the files of a directory be files of package mongo.
func take(root, from, scratch string, replace map[string]string) error {
	files, err := filepath.Glob(filepath.Join(root, from, "*.go"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file) //nolint:gosec // of the checkout
		if err != nil {
			return err
		}
		name := filepath.Base(file)
		at := filepath.Join(scratch, name)
		if err := os.WriteFile(at, text, 0o600); err != nil {
			return err
		}
		replace[filepath.Join(root, old, name)] = at
	}
	return nil
}

var (
	row  = regexp.MustCompile("(?m)^\\| (`[^|]*_test\\.go`[^|]*)\\| stays:")
	name = regexp.MustCompile("`([a-z_]+_test\\.go)`")
)

// staying are the tests that the page says stay as they are.
func staying(page string) map[string]bool {
	_, section, _ := strings.Cut(page, "\n## The switch\n")
	stays := map[string]bool{}
	for _, match := range row.FindAllStringSubmatch(section, -1) {
		for _, file := range name.FindAllStringSubmatch(match[1], -1) {
			stays[file[1]] = true
		}
	}
	return stays
}
