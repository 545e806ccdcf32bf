package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill/roles"
)

// Right is what a task needs on a table or a sequence.
type Right struct {
	// Name is that of the table without the prefix.
	Name string
	// Privileges are names such as INSERT. SELECT (id) is the right to read a column.
	Privileges []string
}

const (
	// sqlLacking lists those of the privileges $3 on the relations $2 of the schema $1 that the
	// user lacks. $4 has the columns of a privilege with some, with commas, and is empty for one without.
	sqlLacking = `SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE ' ELSE '' END, w.name,
	w.privilege || CASE WHEN w.columns <> '' THEN ' (' || w.columns || ')' ELSE '' END
FROM unnest($2::text[], $3::text[], $4::text[]) AS w (name, privilege, columns)
JOIN pg_namespace AS n ON n.nspname = $1::text JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = w.name
WHERE NOT CASE WHEN c.relkind = 'S' THEN has_sequence_privilege(c.oid, w.privilege)
	WHEN w.columns = '' THEN has_table_privilege(c.oid, w.privilege)
	ELSE (SELECT bool_and(has_column_privilege(c.oid, l.name, w.privilege)) FROM unnest(string_to_array(w.columns, ', ')) AS l (name)) END`

	// sqlLackingFunctions lists those of the functions $2 that the user may not call.
	sqlLackingFunctions = `SELECT 'FUNCTION ', p.proname::text, 'EXECUTE' FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
WHERE n.nspname = $1::text AND p.proname = ANY ($2::text[]) AND NOT has_function_privilege(p.oid, 'EXECUTE')`

	sqlLackingUsage = `SELECT 'SCHEMA ', n.nspname::text, 'USAGE' FROM pg_namespace AS n
WHERE n.nspname = $1::text AND NOT has_schema_privilege(n.oid, 'USAGE')`
)

// lacking are the privileges that a user lacks on one object.
type lacking struct {
	privileges, tasks []string
}

// functions are those that readers call. They are everybody's, unless somebody has revoked that.
func (d Database) functions() (names []string) {
	for _, p := range d.Parts {
		if p.Kind == "function" && !slices.Contains(d.Reserved, p.Name) {
			names = append(names, d.Prefix+p.Name)
		}
	}
	return names
}

func (d Database) rights(ctx context.Context, request roles.ExamineRequest, e *roles.Examination) error {
	var user string
	if err := d.Query(ctx, `SELECT current_user::text`, nil, func(scan func(...any) error) error { return scan(&user) }); err != nil {
		return err
	}
	found := map[string]lacking{}
	note := func(kind, name, privilege string, tasks ...string) {
		object := kind + pgx.Identifier{d.Schema, name}.Sanitize()
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
	var tasks []string
	for _, task := range request.Tasks {
		tasks = append(tasks, string(task))
		if err := d.lackingOf(ctx, task, note); err != nil {
			return err
		}
	}
	err := d.Query(ctx, sqlLackingUsage, []any{d.Schema}, func(scan func(...any) error) error {
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

func (d Database) lackingOf(ctx context.Context, task roles.Task, note func(kind, name, privilege string, tasks ...string)) error {
	var names, privileges, columns []string
	for _, r := range d.Rights[task] {
		for _, privilege := range r.Privileges {
			privilege, of, _ := strings.Cut(privilege, " (")
			names, privileges = append(names, d.Prefix+r.Name), append(privileges, privilege)
			columns = append(columns, strings.TrimSuffix(of, ")"))
		}
	}
	each := func(scan func(...any) error) error {
		var kind, name, privilege string
		err := scan(&kind, &name, &privilege)
		note(kind, name, privilege, string(task))
		return err
	}
	if err := d.Query(ctx, sqlLacking, []any{d.Schema, names, privileges, columns}, each); err != nil {
		return err
	}
	if task != roles.TaskRead {
		return nil
	}
	return d.Query(ctx, sqlLackingFunctions, []any{d.Schema, d.functions()}, each)
}

func missingRight(user, object string, l lacking) roles.Finding {
	privileges := strings.Join(l.privileges, ", ")
	return roles.Finding{
		Code: "right_missing", Failure: true, Subject: privileges + " ON " + object,
		Text:   fmt.Sprintf("The user %s lacks %s on %s, which it needs to %s.", user, privileges, object, strings.Join(l.tasks, " and ")),
		Remedy: fmt.Sprintf("GRANT %s ON %s TO %s; docs/postgres.md lists all rights.", privileges, object, pgx.Identifier{user}.Sanitize()),
	}
}
