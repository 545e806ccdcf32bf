// Package migrate reads a store's schema from versioned SQL files.
package migrate

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/outmill/outmill"
)

// Migration is one file: what brings a schema from the version before to
// Version.
type Migration struct {
	Version    int
	Statements []string
}

var fileName = regexp.MustCompile(`^(\d{4})_[a-z0-9_]+\.sql$`)

// Load reads the files NNNN_name.sql of dir, which must number from 1 without
// a gap. Statements end with a semicolon at the end of a line, save within the
// body of a function, between two BodyQuotes. rewrite turns
// each statement into its final form (names of tables, …).
func Load(fsys fs.FS, dir string, rewrite func(string) string) ([]Migration, error) {
	entries, err := fs.ReadDir(fsys, dir)
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	migrations := make([]Migration, 0, len(entries))
	for i, entry := range entries {
		version, err := versionOf(entry.Name())
		if err != nil {
			return nil, err
		}
		if version != i+1 {
			return nil, fmt.Errorf("migrate: %s: want version %04d here", entry.Name(), i+1)
		}
		text, err := fs.ReadFile(fsys, path.Join(dir, entry.Name()))
		if err != nil {
			return nil, fmt.Errorf("migrate: %w", err)
		}
		statements := split(string(text))
		for j := range statements {
			statements[j] = rewrite(statements[j])
		}
		migrations = append(migrations, Migration{Version: version, Statements: statements})
	}
	return migrations, nil
}

func versionOf(name string) (int, error) {
	match := fileName.FindStringSubmatch(name)
	if match == nil {
		return 0, fmt.Errorf("migrate: %s: want a name such as 0001_records.sql", name)
	}
	return strconv.Atoi(match[1])
}

// BodyQuote stands before and after the body of a function.
const BodyQuote = "$outmill$"

// split keeps the comments of a statement with it, since users read the
// statements in their own migration files.
func split(text string) []string {
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

// CheckFrom refuses a version that no schema has up to the newest one. 0 is an empty
// database.
func CheckFrom(version, newest int) error {
	switch {
	case version < 0:
		return fmt.Errorf("%w: StatementsFrom: version is %d: want 0 (an empty database) to %d", outmill.ErrInvalidConfig, version, newest)
	case version > newest:
		return fmt.Errorf("%w (version %d was asked for, this program knows %d): update Outmill", outmill.ErrSchemaNewer, version, newest)
	}
	return nil
}

// Statements are those of the migrations, in their order.
func Statements(migrations []Migration) []string {
	var statements []string
	for _, m := range migrations {
		statements = append(statements, m.Statements...)
	}
	return statements
}
