package house

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// ourCommand is a go test command of a page, of a comment or of the Makefile, up to its end. ourPattern is what it has tests run by.
var (
	ourCommand = regexp.MustCompile("go test (?:[^`)\n]*? )?-run [^`)\n]*")
	ourPattern = regexp.MustCompile(`-run (?:'([^']*)'|(\S+))`)
	ourPackage = regexp.MustCompile(`(?:^| )(?:-C )?(\./[a-z0-9/]+|[a-z]+/[a-z0-9/]+)`)
	ourTests   = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Example|Fuzz)\w*)\(`)
	ourTexts   = regexp.MustCompile(`"(?:[^"\\\n]|\\.)*"`)
)

func TestDocs_Commands(t *testing.T) {
	t.Parallel()
	all := readTests(t)
	t.Run("run tests that there are", func(t *testing.T) {
		t.Parallel()
		checked := 0
		eachFile(t, func(path, content string) {
			if strings.Contains(path, "internal/house") {
				return
			}
			for _, command := range ourCommand.FindAllString(content, -1) {
				assert.Empty(t, all.missing(command), "%s: `%s` runs no test", path, command)
				checked++
			}
		})
		require.NotZero(t, checked)
	})
	t.Run("notice one that runs none", func(t *testing.T) {
		t.Parallel()
		assert.NotEmpty(t, all.missing("go test ./internal/chaos -run whatever_breaks/mongo"))
		assert.NotEmpty(t, all.missing("go test ./internal/chaos -run TestConformance"))
		assert.NotEmpty(t, all.missing("go test ./internal/chaos -run 'TestChaos/there_is_no_such_sentence'"))
		assert.Empty(t, all.missing("go test ./internal/chaos -run /whatever_breaks/mongo"))
	})
}

// ourNames are the tests of each folder, and all texts of tests, as go test writes them in a name.
type ourNames struct {
	tests map[string][]string
	texts []string
}

func readTests(t *testing.T) ourNames {
	t.Helper()
	all := ourNames{tests: map[string][]string{}}
	eachFile(t, func(path, content string) {
		// The suites are in files of another name.
		suite := strings.Contains(path, "storetest") && filepath.Ext(path) == ".go"
		if !suite && !strings.HasSuffix(path, "_test.go") || strings.Contains(path, "internal/house") {
			return
		}
		folder := filepath.Dir(path)
		for _, name := range ourTests.FindAllStringSubmatch(content, -1) {
			all.tests[folder] = append(all.tests[folder], name[1])
		}
		for _, text := range ourTexts.FindAllString(content, -1) {
			all.texts = append(all.texts, strings.ReplaceAll(strings.Trim(text, `"`), " ", "_"))
		}
	})
	return all
}

// missing says which part of the command's pattern names no test, and is empty if each part names one.
func (n ourNames) missing(command string) string {
	found := ourPattern.FindStringSubmatch(command)
	if found == nil {
		return ""
	}
	// A table of Markdown has \| for the | of a pattern.
	parts := strings.Split(strings.ReplaceAll(found[1]+found[2], `\|`, "|"), "/")
	if parts[0] != "" && parts[0] != "^$" && parts[0] != "-" {
		if pattern := regexp.MustCompile(parts[0]); !slices.ContainsFunc(n.of(command), pattern.MatchString) {
			return parts[0] + " is the name of no test"
		}
	}
	for _, part := range parts[1:] {
		if pattern := regexp.MustCompile(part); !slices.ContainsFunc(n.texts, pattern.MatchString) {
			return part + " is the name of no subtest"
		}
	}
	return ""
}

// of returns the tests of the packages that the command names, and those of all packages if it names none of ours: a page also shows
// commands for a package of the reader's.
func (n ourNames) of(command string) (tests []string) {
	_, arguments, _ := strings.Cut(ourPattern.ReplaceAllString(command, ""), "go test")
	for _, found := range ourPackage.FindAllStringSubmatch(arguments, -1) {
		tests = append(tests, n.tests[filepath.Join(root, found[1])]...)
	}
	if len(tests) == 0 {
		return slices.Concat(slices.Collect(maps.Values(n.tests))...)
	}
	return tests
}

// eachFile reads the files of the repository.
func eachFile(t *testing.T, with func(path, content string)) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != root:
			return filepath.SkipDir
		case slices.Contains([]string{".md", ".go"}, filepath.Ext(path)), entry.Name() == "Makefile":
			content, err := os.ReadFile(path)
			with(path, string(content))
			return err
		}
		return nil
	}))
}
