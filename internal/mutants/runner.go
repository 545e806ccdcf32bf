package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/outmill/outmill/internal/mutants/catalog"
)

const (
	// longest ends tests that hang without a mutant.
	longest = 5 * time.Minute
	// A mutant may make its tests wait for ever. They have at least this time, and this many times what they took without it.
	patience = 30 * time.Second
	slower   = 10
	// tries is how often tests run that do not notice a mutant: some meet it by chance, such as those of concurrent claims.
	tries = 3
)

// survivedError says that the tests of a promise do not notice that it is broken.
type survivedError struct {
	key, pattern, output string
	mutant               *catalog.Mutant
}

func (e *survivedError) Error() string {
	return fmt.Sprintf("%s survives: %s (%s, %s), and the tests -run '%s' of %s pass; let one of them notice",
		e.key, e.mutant.Words, e.mutant.File, e.mutant.Place, e.pattern, strings.Join(e.mutant.Packages, " "))
}

// runner compiles test binaries with and without a mutant, outside the checkout.
type runner struct {
	root, dir string
	// plain has the test binary of each package without a mutant.
	plain map[string]string
	// took has, for the packages and patterns whose tests passed without a mutant, how long they took.
	took map[string]time.Duration
}

func newRunner(root string) (*runner, error) {
	dir, err := os.MkdirTemp("", "outmill-mutants-")
	if err != nil {
		return nil, err
	}
	return &runner{root: root, dir: dir, plain: map[string]string{}, took: map[string]time.Duration{}}, nil
}

func (r *runner) close() { _ = os.RemoveAll(r.dir) }

// try returns the test that fails with the mutant and passes without it.
func (r *runner) try(ctx context.Context, m *catalog.Mutant) (test string, err error) {
	overlay, err := r.overlay(m)
	if err != nil {
		return "", err
	}
	survived := &survivedError{key: m.Key, mutant: m}
	for _, pkg := range m.Packages {
		pattern, err := catalog.TestsBearing(r.root, pkg, m.Bears)
		if err != nil {
			return "", fmt.Errorf("%s: %w", m.Key, err)
		}
		took, err := r.requirePass(ctx, m, pkg, pattern)
		if err != nil {
			return "", err
		}
		binary := filepath.Join(r.dir, "mutant.test")
		if out, err := r.compile(ctx, pkg, binary, "-overlay", overlay); err != nil {
			return "", fmt.Errorf("%s: the mutant of %s (%s) does not compile: %w\n%s", m.Key, m.File, m.Place, err, out)
		}
		out, err := r.test(ctx, pkg, binary, pattern, tries, max(patience, slower*took))
		if err != nil {
			if test := failedTest(out, m.Bears); test != "" {
				return test, nil
			}
			return "", fmt.Errorf("%s: tests of %s fail with the mutant of %s (%s), and none of them bears %q:\n%s",
				m.Key, pkg, m.File, m.Place, m.Bears, tail(out))
		}
		survived.pattern = pattern
		survived.output += out
	}
	return "", survived
}

// overlay writes the file with the mutant's change, and returns the name of the file that tells the compiler of it.
func (r *runner) overlay(m *catalog.Mutant) (string, error) {
	original := filepath.Join(r.root, filepath.FromSlash(m.File))
	text, err := os.ReadFile(original)
	if err != nil {
		return "", fmt.Errorf("%s (%s): %w", m.Key, m.Place, err)
	}
	changed, err := m.Apply(string(text))
	if err != nil {
		return "", err
	}
	file := filepath.Join(r.dir, "changed"+filepath.Ext(m.File))
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {original: file}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(r.dir, "overlay.json")
	return overlay, errors.Join(os.WriteFile(file, []byte(changed), 0o600), os.WriteFile(overlay, replace, 0o600))
}

// requirePass runs the tests without the mutant, and returns how long they took: one that fails anyway, or is skipped, notices
// nothing.
func (r *runner) requirePass(ctx context.Context, m *catalog.Mutant, pkg, pattern string) (took time.Duration, err error) {
	if took, passed := r.took[pkg+" "+pattern]; passed {
		return took, nil
	}
	if r.plain[pkg] == "" {
		binary := filepath.Join(r.dir, strings.ReplaceAll(strings.TrimPrefix(pkg, "./"), "/", "-")+".test")
		if out, err := r.compile(ctx, pkg, binary); err != nil {
			return 0, fmt.Errorf("%s: the tests of %s do not compile: %w\n%s", m.Key, pkg, err, out)
		}
		r.plain[pkg] = binary
	}
	begin := time.Now()
	out, err := r.test(ctx, pkg, r.plain[pkg], pattern, 1, longest)
	if err != nil {
		return 0, fmt.Errorf("%s: the tests -run '%s' of %s fail without the mutant: %w\n%s", m.Key, pattern, pkg, err, tail(out))
	}
	if !regexp.MustCompile(`(?m)^\s*--- PASS: \S*` + named(m.Bears)).MatchString(out) {
		return 0, fmt.Errorf("%s: the tests -run '%s' of %s are skipped; start the engine that they need, see CONTRIBUTING.md\n%s",
			m.Key, pattern, pkg, tail(out))
	}
	took = time.Since(begin)
	r.took[pkg+" "+pattern] = took
	return took, nil
}

func (r *runner) compile(ctx context.Context, pkg, binary string, flags ...string) (out string, err error) {
	args := append([]string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", binary}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, pkg)...)
	cmd.Dir = r.root
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// test runs the tests, again and again until one fails, as often as count.
func (r *runner) test(ctx context.Context, pkg, binary, pattern string, count int, timeout time.Duration) (out string, err error) {
	cmd := exec.CommandContext(ctx, binary, "-test.v", "-test.failfast", "-test.count="+strconv.Itoa(count),
		"-test.timeout="+timeout.String(), "-test.run="+pattern)
	cmd.Dir = filepath.Join(r.root, filepath.FromSlash(pkg))
	// Some sentences are tested in one variant of a store only, which short tests leave out.
	cmd.Env = append(os.Environ(), "OUTMILL_TEST_ALL=1")
	// A child of the tests that outlives them does not hold up the next mutant.
	cmd.WaitDelay = 10 * time.Second
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// failedTest returns the name of a test that bears the text and has failed, panicked or not ended.
func failedTest(out, bears string) string {
	for _, pattern := range []string{`(?m)^\s*--- FAIL: (\S*` + named(bears) + `\S*)`, `(?m)^\s+(Test\S*` + named(bears) + `\S*) \(\S+\)$`} {
		if found := regexp.MustCompile(pattern).FindStringSubmatch(out); found != nil {
			return found[1]
		}
	}
	if strings.Contains(out, "\npanic: ") || strings.HasPrefix(out, "panic: ") {
		return "a panic"
	}
	return ""
}

// named is a pattern for the text as package testing prints it in names.
func named(bears string) string { return regexp.QuoteMeta(strings.ReplaceAll(bears, " ", "_")) }

// tail returns the end of an output.
func tail(out string) string {
	lines := strings.Split(strings.TrimRight(out, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-30):], "\n")
}
