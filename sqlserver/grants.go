package sqlserver

import (
	_ "embed"
	"strings"
)

//go:embed grants.sql
var grantsFile string

// Grants returns the T-SQL that gives a role, or a user, of the database the rights that the
// store needs: SELECT, INSERT, UPDATE and DELETE on its tables, and EXECUTE on its procedures and
// table types. The owner of the schema runs it once after each Ensure that brought a new version.
// The file grants.sql has the same statements with the default names.
//
// Ensure needs more: CREATE TABLE, CREATE VIEW, CREATE TYPE and CREATE PROCEDURE in the database,
// ALTER on the schema, REFERENCES on it for the table types that the procedures take, and CREATE
// SCHEMA if Config.Schema does not exist. So let a deployment job with these rights call Ensure,
// and give the program the rights of Grants. The view OutboxReadable is for people, who need
// SELECT on it.
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
