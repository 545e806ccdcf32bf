package driver

import (
	_ "embed"
	"regexp"
	"strings"
)

// grantsFile has the rights of a program, one statement a line.
//
//go:embed grants.sql
var grantsFile string

// Grants returns the statements that give a role, or a user, the rights of a program.
func (d *Driver) Grants(role string) []string { return d.granted(grantsFile, role) }

func (d *Driver) granted(file, role string) (grants []string) {
	quoted := "[" + strings.ReplaceAll(role, "]", "]]") + "]"
	for line := range strings.Lines(file) {
		if statement, is := strings.CutSuffix(strings.TrimSpace(line), " TO {role};"); is && strings.HasPrefix(statement, "GRANT ") {
			grants = append(grants, d.names.in(statement)+" TO "+quoted)
		}
	}
	return grants
}

// permission is a right of Grants.
type permission struct {
	Name       string `json:"name"`
	Class      string `json:"class"`
	Permission string `json:"permission"`
}

var grantLine = regexp.MustCompile(`^GRANT (.+) ON (TYPE::)?(\[.+\]) TO `)

// permissions are the rights of Grants, without those on procedures, which the driver does not call.
func (d *Driver) permissions() (all []permission) {
	own, _, _ := strings.Cut(grantsFile, "-- The procedures")
	for _, statement := range d.granted(own, "x") {
		found := grantLine.FindStringSubmatch(statement)
		class := "OBJECT"
		if found[2] != "" {
			class = "TYPE"
		}
		for name := range strings.SplitSeq(found[1], ", ") {
			all = append(all, permission{found[3], class, name})
		}
	}
	return all
}
