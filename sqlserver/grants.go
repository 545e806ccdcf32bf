package sqlserver

import (
	_ "embed"
	"strings"
)

//go:embed grants.sql
var grantsFile string

// Grants returns the T-SQL that gives a role, or a user, of the database the
// rights that the store needs: SELECT, INSERT, UPDATE and DELETE on its tables,
// EXECUTE on its procedures and on its table types. It is for the owner of the
// schema, once after each Ensure that brought a new version; the file grants.sql
// has the same with the default names.
//
// Ensure takes more: CREATE TABLE, CREATE VIEW, CREATE TYPE and CREATE PROCEDURE
// in the database, ALTER on the schema, REFERENCES on it for the table types that
// the procedures take, and CREATE SCHEMA where Config.Schema is not there yet. So
// let a deploy job with these rights ensure the schema, and the program run with
// Grants. The view OutboxReadable is for people, who need SELECT on it.
func (s *Store) Grants(role string) []string {
	quoted := "[" + strings.ReplaceAll(role, "]", "]]") + "]"
	var grants []string
	for line := range strings.Lines(grantsFile) {
		if statement, is := strings.CutSuffix(strings.TrimSpace(line), " TO [outmill];"); is {
			grants = append(grants, s.sql.expand(statement)+" TO "+quoted)
		}
	}
	return grants
}
