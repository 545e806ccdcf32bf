package house

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill/internal/mutants/catalog"
)

const root = "../.."

func TestDocs(t *testing.T) {
	t.Parallel()
	t.Run("link to files that are there", func(t *testing.T) {
		t.Parallel()
		link := regexp.MustCompile(`\]\(([^)#\s]+)(?:#[^)]*)?\)`)
		// Pages of the site link to files outside docs/ by their address.
		repository := regexp.MustCompile(`^https://github\.com/outmill/outmill/(?:blob|tree)/main/(.+)$`)
		checked := 0
		require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".md" {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, found := range link.FindAllStringSubmatch(string(text), -1) {
				target := filepath.Join(filepath.Dir(path), filepath.FromSlash(found[1]))
				if ours := repository.FindStringSubmatch(found[1]); ours != nil {
					target = filepath.Join(root, filepath.FromSlash(ours[1]))
				} else if strings.Contains(found[1], ":") {
					continue
				}
				checked++
				_, err := os.Stat(target)
				require.NoError(t, err, "%s links to %s", path, found[1])
			}
			return nil
		}))
		require.NotZero(t, checked)
	})
	t.Run("show the program that a test runs", func(t *testing.T) {
		t.Parallel()
		readme, err := os.ReadFile(filepath.Join(root, "README.md"))
		require.NoError(t, err)
		example, err := os.ReadFile(filepath.Join(root, "example_readme_test.go"))
		require.NoError(t, err)
		_, program, _ := strings.Cut(string(example), "package outmill_test\n")
		program = "package main\n" + strings.TrimRight(program, "\n")
		program = strings.Replace(program, "// An order and its message commit together, and a router handler gets the message.\n", "", 1)
		program = strings.Replace(program, "func Example_readme() {", "func main() {", 1)
		program, found := cutLine(program, "\t// Output: ")
		require.True(t, found)
		require.Contains(t, string(readme), "```go\n"+program+"\n```")
	})
	t.Run("show the harness of a store as it is tested", func(t *testing.T) {
		t.Parallel()
		page, err := os.ReadFile(filepath.Join(root, "docs", "store-tests.md"))
		require.NoError(t, err)
		source, err := os.ReadFile(filepath.Join(root, "storetest", "memstore", "memstore_test.go"))
		require.NoError(t, err)
		require.Contains(t, string(page), "```go\n"+strings.TrimRight(string(source), "\n")+"\n```",
			"docs/store-tests.md: copy storetest/memstore/memstore_test.go to the page")
	})
	t.Run("name each role to which the schema of PostgreSQL grants rights", func(t *testing.T) {
		t.Parallel()
		var schema strings.Builder
		for _, file := range []string{"schema/0001_tables.sql", "log.sql"} {
			text, err := os.ReadFile(filepath.Join(root, "postgres", "internal", "driver", file))
			require.NoError(t, err)
			schema.Write(text)
		}
		lists := regexp.MustCompile(`(?m)^-- GRANT .* TO ([a-z_, ]+)$`).FindAllStringSubmatch(schema.String(), -1)
		require.NotEmpty(t, lists)
		page, err := os.ReadFile(filepath.Join(root, "docs", "postgres.md"))
		require.NoError(t, err)
		source, err := os.ReadFile(filepath.Join(root, "postgres", "doc.go"))
		require.NoError(t, err)
		for _, list := range lists {
			for role := range strings.SplitSeq(list[1], ", ") {
				require.Contains(t, string(page), "| `"+role+"` |")
				require.Contains(t, string(source), "//\t"+role+" ")
			}
		}
	})
	t.Run("are all pages of the site", func(t *testing.T) {
		t.Parallel()
		site, err := os.ReadFile(filepath.Join(root, "mkdocs.yml"))
		require.NoError(t, err)
		pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
		require.NoError(t, err)
		for _, page := range pages {
			require.Contains(t, string(site), ": "+filepath.Base(page)+"\n")
		}
	})
	t.Run("say of each number in the specification whether storetest tests it", func(t *testing.T) {
		t.Parallel()
		tested := map[string]bool{}
		var files []string
		for _, suite := range []string{"storetest", "storetest/joinstest"} {
			found, err := filepath.Glob(filepath.Join(root, suite, "*.go"))
			require.NoError(t, err)
			files = append(files, found...)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, number := range regexp.MustCompile(`OBX-\d{3}`).FindAllString(string(text), -1) {
				tested[number] = true
			}
		}
		promises, err := catalog.Promises(root)
		require.NoError(t, err)
		require.Len(t, promises, 124)
		claimed := map[string]bool{}
		for _, p := range promises {
			if slices.Equal(p.TestedBy, []string{"storetest"}) {
				claimed[p.Number] = true
			}
		}
		require.Equal(t, tested, claimed)
	})

	t.Run("name for each number of the specification packages with a test that bears it", func(t *testing.T) {
		t.Parallel()
		promises, err := catalog.Promises(root)
		require.NoError(t, err)
		for _, p := range promises {
			for _, pkg := range p.TestedBy {
				if pkg == "bench" { // It measures; its numbers are in docs/benchmarks.md.
					continue
				}
				has, err := catalog.HasTest(root, pkg, p.Number)
				require.NoError(t, err)
				assert.True(t, has, "%s: no test of %s has the number in its name", p.Number, pkg)
			}
		}
	})
}

// cutLine removes the line with this beginning.
func cutLine(text, begins string) (rest string, found bool) {
	before, after, found := strings.Cut(text, begins)
	_, after, _ = strings.Cut(after, "\n")
	return before + after, found
}
