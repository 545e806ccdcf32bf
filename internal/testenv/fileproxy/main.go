// Command fileproxy writes the modules of this checkout into a directory that Go reads as a
// module proxy:
//
//	go run ./internal/testenv/fileproxy -dir DIR
//	GOPROXY=file://DIR,… GONOSUMDB=github.com/outmill/* go install github.com/outmill/outmill/cmd/outmill@v0.0.0-test
//
// Each module has two versions with the same content: the version that the nested modules
// require of it, and v0.0.0-test. So a test builds them as users will after a release, before
// there is one. Files that Git ignores are left out.
package main

import (
	"archive/zip"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	root        = "github.com/outmill/outmill"
	testVersion = "v0.0.0-test"
)

func main() {
	dir := flag.String("dir", "", "the `directory` to write to")
	flag.Parse()
	if *dir == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := write(context.Background(), *dir); err != nil {
		fmt.Fprintln(os.Stderr, "fileproxy:", err)
		os.Exit(1)
	}
}

// module is a module of the checkout.
type module struct {
	// dir is relative to the checkout; "" is the root module.
	dir   string
	goMod []byte
	files []string
}

func (m module) path() string {
	if m.dir == "" {
		return root
	}
	return root + "/" + filepath.ToSlash(m.dir)
}

func write(ctx context.Context, dir string) error {
	modules, err := find(ctx)
	if err != nil {
		return err
	}
	for _, m := range modules {
		versions := []string{testVersion}
		if required := requiredVersion(modules, m.path()); required != "" {
			versions = append(versions, required)
		}
		if err := m.writeList(dir, versions); err != nil {
			return err
		}
		for _, version := range versions {
			if err := m.write(dir, version); err != nil {
				return fmt.Errorf("%s@%s: %w", m.path(), version, err)
			}
		}
	}
	return nil
}

// find returns the modules of the checkout with their files.
func find(ctx context.Context) ([]module, error) {
	list, err := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w: run it at the top of a Git checkout", err)
	}
	files := strings.Split(strings.TrimRight(string(list), "\x00"), "\x00")
	// The longest directory first, so that a file belongs to the innermost module.
	var modules []module
	for _, file := range files {
		if filepath.Base(file) != "go.mod" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		modules = append(modules, module{dir: strings.TrimSuffix(strings.TrimSuffix(file, "go.mod"), "/"), goMod: text})
	}
	slices.SortFunc(modules, func(a, b module) int { return len(b.dir) - len(a.dir) })
	for _, file := range files {
		for i, m := range modules {
			if m.dir == "" || strings.HasPrefix(file, m.dir+"/") {
				modules[i].files = append(modules[i].files, file)
				break
			}
		}
	}
	return modules, nil
}

// requiredVersion returns the version of the module that the others require, or "".
func requiredVersion(modules []module, path string) string {
	requirement := regexp.MustCompile(`(?m)^(?:require\s+|\s+)` + regexp.QuoteMeta(path) + `\s+(v\S+)`)
	for _, m := range modules {
		if found := requirement.FindSubmatch(m.goMod); found != nil {
			return string(found[1])
		}
	}
	return ""
}

// at is where a proxy keeps the versions of the module.
func (m module) at(dir string) string { return filepath.Join(dir, filepath.FromSlash(m.path()), "@v") }

// writeList writes the list of versions, which go install reads.
func (m module) writeList(dir string, versions []string) error {
	if err := os.MkdirAll(m.at(dir), 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(m.at(dir), "list"), []byte(strings.Join(versions, "\n")+"\n"), 0o600)
}

func (m module) write(dir, version string) error {
	at := m.at(dir)
	info := fmt.Sprintf(`{"Version":%q,"Time":%q}`, version, time.Unix(0, 0).UTC().Format(time.RFC3339))
	return errors.Join(
		os.WriteFile(filepath.Join(at, version+".info"), []byte(info), 0o600),
		os.WriteFile(filepath.Join(at, version+".mod"), m.goMod, 0o600),
		m.writeZip(filepath.Join(at, version+".zip"), version),
	)
}

func (m module) writeZip(name, version string) (err error) {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	archive := zip.NewWriter(file)
	for _, path := range m.files {
		if err := m.add(archive, path, version); err != nil {
			return err
		}
	}
	return archive.Close()
}

func (m module) add(archive *zip.Writer, path, version string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		// Deleted, and Git still lists it.
		return nil
	}
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	within := strings.TrimPrefix(strings.TrimPrefix(path, m.dir), "/")
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := archive.Create(m.path() + "@" + version + "/" + within)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return err
}
