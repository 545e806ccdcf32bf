package sqlkit

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// Part is a table, index, view, function or trigger that migrations create.
type Part struct {
	// Kind is in lower case: table, index, view, function or trigger.
	Kind string
	// Name is the name in the placeholder of the file: records for {p:records}.
	Name string
}

var made = regexp.MustCompile(`(?m)^(CREATE|DROP)(?: UNIQUE)?(?: OR REPLACE)? ` +
	`(TABLE|INDEX|VIEW|FUNCTION|TRIGGER)(?: IF(?: NOT)? EXISTS)? \{[pi]:([a-z0-9_]+)\}`)

// Parts returns what the migrations of the directory create and do not drop again, in the order
// of the files. See PartsOf.
func Parts(fsys fs.FS, dir string) ([]Part, error) {
	migrations, err := LoadMigrations(fsys, dir, func(statement string) string { return statement })
	return PartsOf(Statements(migrations)), err
}

// PartsOf returns what the statements create and do not drop again, in their order. It finds the
// lines that begin with CREATE or DROP and name a part by a placeholder, {p:…} or {i:…}.
func PartsOf(statements []string) (parts []Part) {
	for _, statement := range statements {
		for _, match := range made.FindAllStringSubmatch(statement, -1) {
			part := Part{strings.ToLower(match[2]), match[3]}
			parts = slices.DeleteFunc(parts, func(p Part) bool { return p == part })
			if match[1] == "CREATE" {
				parts = append(parts, part)
			}
		}
	}
	return parts
}

// PartNames are the names that parts have with the prefix.
func PartNames(parts []Part, prefix string) []string {
	return Mapped(parts, func(p *Part) string { return prefix + p.Name })
}

// Examine reports each of the parts that is not there under its name with the prefix. There are databases that write names in lower case.
func Examine(e *roles.Examination, parts []Part, prefix string, there []string) {
	for i, name := range PartNames(parts, prefix) {
		if kind := parts[i].Kind; !slices.ContainsFunc(there, func(n string) bool { return strings.EqualFold(n, name) }) {
			e.Add(storekit.MissingPart(kind, name, "Calls that name it fail.", kind != "view"))
		}
	}
}
