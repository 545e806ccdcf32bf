package sqlkit

import (
	"fmt"
	"io/fs"
	"strings"
)

// nameLine begins a statement in a file of statements.
const nameLine = "\n-- name: "

// NamedStatements returns the statements of the files that match the pattern, by their names. A statement begins with a line
// "-- name: NAME", and ends at the next one. Its comments stay in the file; behind its first word it has its name instead, so
// that a DBA finds it in a list of statements.
func NamedStatements(fsys fs.FS, pattern string) (map[string]string, error) {
	files, err := fs.Glob(fsys, pattern)
	if err != nil {
		return nil, fmt.Errorf("sqlkit: %w", err)
	}
	found := map[string]string{}
	for _, file := range files {
		text, err := fs.ReadFile(fsys, file)
		if err != nil {
			return nil, fmt.Errorf("sqlkit: %w", err)
		}
		for part := range strings.SplitSeq("\n"+string(text), nameLine) {
			name, body, named := strings.Cut(part, "\n")
			if !named || name == "" || strings.ContainsAny(name, " -") {
				continue
			}
			if found[name] != "" {
				return nil, fmt.Errorf("sqlkit: %s: there are two statements %s", file, name)
			}
			found[name] = withName(name, body)
		}
	}
	return found, nil
}

func withName(name, body string) string {
	var lines []string
	for line := range strings.SplitSeq(body, "\n") {
		if !strings.HasPrefix(line, "--") && line != "" {
			lines = append(lines, line)
		}
	}
	verb, rest, _ := strings.Cut(strings.Join(lines, "\n"), " ")
	return verb + " /* outmill " + name + " */ " + rest
}
