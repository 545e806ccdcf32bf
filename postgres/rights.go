package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill/roles"
)

// right is what a task needs on a table or, in sequences, on a sequence.
type right struct {
	name       string
	privileges []string
}

// taskRights are those of the documentation, for a schema without the log.
var taskRights = map[roles.Task][]right{
	roles.TaskPublish: {
		{"meta", []string{"SELECT"}}, {"groups", []string{"SELECT"}}, {"records", []string{"INSERT"}},
		{"dedup", []string{"SELECT", "INSERT", "UPDATE"}},
	},
	roles.TaskRead: {
		{"meta", []string{"SELECT", "UPDATE"}},
		{"groups", []string{"SELECT", "INSERT", "UPDATE", "DELETE"}}, {"workers", []string{"SELECT", "INSERT", "UPDATE", "DELETE"}},
		{"endings", []string{"SELECT", "INSERT", "UPDATE", "DELETE"}},
		{"records", []string{"SELECT", "UPDATE", "DELETE"}}, {"dedup", []string{"SELECT", "UPDATE", "DELETE"}},
		{"inbox", []string{"SELECT", "INSERT", "UPDATE", "DELETE"}},
		{"sagas", []string{"SELECT", "DELETE"}}, {"audit", []string{"SELECT", "DELETE"}},
		{"lanes", []string{"SELECT", "INSERT", "UPDATE", "DELETE"}},
		{"pauses", []string{"SELECT"}},
		{"joins", []string{"SELECT", "UPDATE", "DELETE"}}, {"join_members", []string{"SELECT", "UPDATE", "DELETE"}},
	},
}

// logRights are the further ones for a schema with the log.
var logRights = map[roles.Task][]right{
	roles.TaskPublish: {{"log", []string{"INSERT"}}, {"records_seq_seq", []string{"USAGE"}}},
	roles.TaskRead: {
		{"records", []string{"INSERT"}}, {"log", []string{"SELECT", "DELETE"}}, {"batches", []string{"SELECT", "INSERT", "UPDATE"}},
		{"late", []string{"SELECT", "INSERT", "UPDATE", "DELETE"}}, {"ended", []string{"SELECT", "INSERT"}},
		{"records_seq_seq", []string{"SELECT"}},
	},
}

const (
	// sqlLacking lists those of the privileges $3 on the relations $2 of the schema $1 that the
	// user lacks.
	sqlLacking = `SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE ' ELSE '' END, w.name, w.privilege
FROM unnest($2::text[], $3::text[]) AS w (name, privilege)
JOIN pg_namespace AS n ON n.nspname = $1::text JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = w.name
WHERE NOT CASE c.relkind WHEN 'S' THEN has_sequence_privilege(c.oid, w.privilege) ELSE has_table_privilege(c.oid, w.privilege) END`

	// sqlLackingFunctions lists those of the functions $2 that the user may not call.
	sqlLackingFunctions = `SELECT 'FUNCTION ', p.proname, 'EXECUTE' FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
WHERE n.nspname = $1::text AND p.proname = ANY ($2::text[]) AND NOT has_function_privilege(p.oid, 'EXECUTE')`

	sqlLackingUsage = `SELECT 'SCHEMA ', n.nspname, 'USAGE' FROM pg_namespace AS n
WHERE n.nspname = $1::text AND NOT has_schema_privilege(n.oid, 'USAGE')`

	sqlLogIsOn = `SELECT count(*) FROM {p:meta} WHERE only_row AND lane = 'log'`
)

// lacking are the privileges that a user lacks on one object.
type lacking struct {
	privileges, tasks []string
}

// readFunctions are those that readers call. They are everybody's, unless somebody has revoked that.
func (s *Store) readFunctions(parts []part) (names []string) {
	for _, p := range parts {
		if p.kind == "function" && p.name != s.config.TablePrefix+"append" {
			names = append(names, p.name)
		}
	}
	return names
}

func (s *Store) examineRights(ctx context.Context, request roles.ExamineRequest, parts []part, e *roles.Examination) error {
	var user string
	if err := s.safe().QueryRow(ctx, `SELECT current_user::text`).Scan(&user); err != nil {
		return err
	}
	found := map[string]lacking{}
	note := func(kind, name, privilege string, tasks ...string) {
		object := kind + pgx.Identifier{s.config.Schema, name}.Sanitize()
		if kind == "SCHEMA " {
			object = kind + pgx.Identifier{name}.Sanitize()
		}
		l := found[object]
		for _, task := range tasks {
			if !slices.Contains(l.tasks, task) {
				l.tasks = append(l.tasks, task)
			}
		}
		if !slices.Contains(l.privileges, privilege) {
			l.privileges = append(l.privileges, privilege)
		}
		found[object] = l
	}
	logged, err := s.logIsOn(ctx)
	if err != nil {
		return err
	}
	var tasks []string
	for _, task := range request.Tasks {
		tasks = append(tasks, string(task))
		if err := s.lackingOf(ctx, task, logged, parts, note); err != nil {
			return err
		}
	}
	err = s.rowsOf(ctx, sqlLackingUsage, []any{s.config.Schema}, func(scan func(...any) error) error {
		var kind, name, privilege string
		err := scan(&kind, &name, &privilege)
		note(kind, name, privilege, tasks...)
		return err
	})
	for _, object := range slices.Sorted(maps.Keys(found)) {
		e.Add(missingRight(user, object, found[object]))
	}
	return err
}

// logIsOn returns false if the user may not read it.
func (s *Store) logIsOn(ctx context.Context) (on bool, err error) {
	var n int
	err = s.safe().QueryRow(ctx, s.sql.text(sqlLogIsOn)).Scan(&n)
	if code(err) == codeNoRight {
		return false, nil
	}
	return n > 0, err
}

func (s *Store) lackingOf(ctx context.Context, task roles.Task, logged bool, parts []part,
	note func(kind, name, privilege string, tasks ...string),
) error {
	rights := taskRights[task]
	if logged {
		rights = slices.Concat(rights, logRights[task])
	}
	var names, privileges []string
	for _, r := range rights {
		for _, privilege := range r.privileges {
			names, privileges = append(names, s.config.TablePrefix+r.name), append(privileges, privilege)
		}
	}
	each := func(scan func(...any) error) error {
		var kind, name, privilege string
		err := scan(&kind, &name, &privilege)
		note(kind, name, privilege, string(task))
		return err
	}
	if err := s.rowsOf(ctx, sqlLacking, []any{s.config.Schema, names, privileges}, each); err != nil {
		return err
	}
	if task != roles.TaskRead {
		return nil
	}
	return s.rowsOf(ctx, sqlLackingFunctions, []any{s.config.Schema, s.readFunctions(parts)}, each)
}

func missingRight(user, object string, l lacking) roles.Finding {
	privileges := strings.Join(l.privileges, ", ")
	return roles.Finding{
		Code: "right_missing", Failure: true, Subject: privileges + " ON " + object,
		Text:   fmt.Sprintf("The user %s lacks %s on %s, which it needs to %s.", user, privileges, object, strings.Join(l.tasks, " and ")),
		Remedy: fmt.Sprintf("GRANT %s ON %s TO %s; docs/postgres.md lists all rights.", privileges, object, pgx.Identifier{user}.Sanitize()),
	}
}
