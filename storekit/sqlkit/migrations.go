package sqlkit

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/outmill/outmill/storekit"
)

// Migration is one file of a store's schema: the statements that bring the schema from the
// previous version to Version.
type Migration struct {
	Version    int
	Statements []string
}

var fileName = regexp.MustCompile(`^(\d{4})_[a-z0-9_]+\.sql$`)

// LoadMigrations reads the files NNNN_name.sql of dir, whose numbers must start at 1 and
// have no gap. Statements end with a semicolon at the end of a line, except in the body of
// a function, between two BodyQuotes. rewrite turns each statement into its final form
// (names of tables, …).
func LoadMigrations(fsys fs.FS, dir string, rewrite func(string) string) ([]Migration, error) {
	entries, err := fs.ReadDir(fsys, dir)
	if err != nil {
		return nil, fmt.Errorf("sqlkit: %w", err)
	}
	migrations := make([]Migration, 0, len(entries))
	for i, entry := range entries {
		version, err := versionOf(entry.Name())
		if err != nil {
			return nil, err
		}
		if version != i+1 {
			return nil, fmt.Errorf("sqlkit: %s: want version %04d here", entry.Name(), i+1)
		}
		text, err := fs.ReadFile(fsys, path.Join(dir, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("sqlkit: %w", err)
		}
		statements := Split(string(text))
		for j := range statements {
			statements[j] = rewrite(statements[j])
		}
		migrations = append(migrations, Migration{Version: version, Statements: statements})
	}
	return migrations, nil
}

var createTable = regexp.MustCompile("(?m)^CREATE TABLE (?:(?:\"(?:[^\"]|\"\")+\"|\\[[^\\]]+\\])\\.)?(?:\"([^\"]+)\"|\\[([^\\]]+)\\])")

// TablesOf returns the names of the tables that the migrations create, without their schema.
func TablesOf(migrations []Migration) []string {
	var names []string
	for _, m := range migrations {
		for _, statement := range m.Statements {
			for _, found := range createTable.FindAllStringSubmatch(statement, -1) {
				names = append(names, found[1]+found[2])
			}
		}
	}
	return names
}

func versionOf(name string) (int, error) {
	match := fileName.FindStringSubmatch(name)
	if match == nil {
		return 0, fmt.Errorf("sqlkit: %s: want a name such as 0001_records.sql", name)
	}
	return strconv.Atoi(match[1])
}

// BodyQuote is the text before and after the body of a function.
const BodyQuote = "$outmill$"

// Split returns the statements of a file. It keeps comments with their statement, because users read the statements in their own
// migration files.
func Split(text string) []string {
	var statements []string
	begun := ""
	for part := range strings.SplitSeq(text, ";\n") {
		if begun += part; strings.Count(begun, BodyQuote)%2 == 1 {
			begun += ";\n"
			continue
		}
		if statement := strings.TrimSpace(begun); statement != "" {
			statements = append(statements, strings.TrimSuffix(statement, ";"))
		}
		begun = ""
	}
	return statements
}

// Statements returns the statements of the migrations, in their order.
func Statements(migrations []Migration) []string {
	var statements []string
	for _, m := range migrations {
		statements = append(statements, m.Statements...)
	}
	return statements
}

// StatementsFrom returns the statements of the files of dir that bring a schema of that version to the newest one. See
// outmill.Schema and LoadMigrations.
func StatementsFrom(fsys fs.FS, dir string, rewrite func(string) string, version int) ([]string, error) {
	migrations, err := LoadMigrations(fsys, dir, rewrite)
	if err == nil {
		err = storekit.CheckSchemaVersion(version, len(migrations))
	}
	if err != nil {
		return nil, err
	}
	return Statements(migrations[version:]), nil
}
