package postgres

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

const (
	sqlClockAndQueue = `SELECT clock_timestamp(), pg_notification_queue_usage()`

	// sqlParts lists the parts $2 of the schema $1 that exist.
	sqlParts = `SELECT c.relname, CASE c.relkind WHEN 'v' THEN 'view' WHEN 'i' THEN 'index' WHEN 'I' THEN 'index' ELSE 'table' END,
	coalesce(i.indisvalid, true)
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace LEFT JOIN pg_index AS i ON i.indexrelid = c.oid
WHERE n.nspname = $1::text AND c.relname = ANY ($2::text[])
UNION ALL SELECT p.proname, 'function', true FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
WHERE n.nspname = $1::text AND p.proname = ANY ($2::text[])`
)

// part is a table, index, view or function of the schema, with the name that it has there.
type part struct{ kind, name string }

// Examine looks for missing parts of the schema and rights, for transactions and lock waits that
// last too long, for replication slots that nobody reads, for a full queue of notifications and for another time than this machine's. To
// see the sessions of other users it needs the role pg_read_all_stats. See roles.Examiner.
func (s *Store) Examine(ctx context.Context, request roles.ExamineRequest) (roles.Examination, error) {
	var e roles.Examination
	err := s.usable(ctx)
	if err == nil {
		err = s.examine(ctx, request, &e)
	}
	return e, s.explain(ctx, "examine", err)
}

func (s *Store) examine(ctx context.Context, request roles.ExamineRequest, e *roles.Examination) error {
	if err := s.examineClock(ctx, request, e); err != nil {
		return err
	}
	// A user without the right to read the version lacks others, too, which the report names.
	if err := s.checkSchema(ctx); err != nil && code(err) != codeNoRight {
		return err
	}
	parts, err := s.parts()
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return s.examineWrites(ctx, e) },
		func() error { return s.examineParts(ctx, parts, e) },
		func() error { return s.examineRights(ctx, request, parts, e) },
		func() error { return s.examineTransactions(ctx, request, e) },
		func() error { return s.examineLocks(ctx, request, e) },
		func() error { return s.examineSlots(ctx, request, e) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	s.admission.Examine(e, s.handlers(), s.morePool())
	s.examinePool(e)
	return nil
}

// rowsOf calls row for each row of the result.
func (s *Store) rowsOf(ctx context.Context, sql string, args []any, row func(scan func(into ...any) error) error) error {
	results := s.safe().send(ctx, sql, args)
	_, err := results.Exec()
	if err == nil {
		var rows pgx.Rows
		if rows, err = results.Query(); err == nil {
			err = step{row: row}.read(rows)
		}
	}
	return closed(results, err)
}

func (s *Store) examineClock(ctx context.Context, request roles.ExamineRequest, e *roles.Examination) error {
	asked := time.Now()
	var now time.Time
	var usage float64
	if err := s.safe().QueryRow(ctx, sqlClockAndQueue).Scan(&now, &usage); err != nil {
		return err
	}
	e.AddClock(request, asked, now, time.Now())
	if usage > request.QueueUsage {
		e.Add(roles.Finding{
			Code: "notify_queue", Subject: "NOTIFY queue",
			Text: fmt.Sprintf("PostgreSQL's queue of notifications is %.2g %% full, because a session listens and stays in a transaction. "+
				"From 50 %% on, appends wake no readers; a full queue fails the commits of other programs that notify.", usage*100),
			Remedy: "End that session: old_transaction names it if it is older than the limit, else look for the oldest xact_start in " +
				"pg_stat_activity. Any program on the server, in any database, may be the one.",
		})
	}
	return nil
}

func (s *Store) parts() ([]part, error) {
	made, err := sqlkit.Parts(schemaFiles, "schema")
	if err != nil {
		return nil, err
	}
	parts := make([]part, len(made))
	for i, p := range made {
		parts[i] = part{p.Kind, s.config.TablePrefix + p.Name}
	}
	return parts, nil
}

func (s *Store) examineParts(ctx context.Context, parts []part, e *roles.Examination) error {
	names := make([]string, len(parts))
	for i, p := range parts {
		names[i] = p.name
	}
	var there, invalid []part
	err := s.rowsOf(ctx, sqlParts, []any{s.config.Schema, names}, func(scan func(...any) error) error {
		var found part
		var valid bool
		if err := scan(&found.name, &found.kind, &valid); err != nil {
			return err
		}
		if there = append(there, found); !valid {
			invalid = append(invalid, found)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, p := range parts {
		if slices.Contains(there, p) {
			continue
		}
		effect, failure := "Calls that name it fail.", p.kind != "view"
		if p.kind == "index" {
			effect, failure = "Calls that need it read the whole table: they become slower with each record.", false
		}
		e.Add(storekit.MissingPart(p.kind, s.config.Schema+"."+p.name, effect, failure))
	}
	for _, p := range invalid {
		name := pgx.Identifier{s.config.Schema, p.name}.Sanitize()
		e.Add(roles.Finding{
			Code: "index_invalid", Subject: s.config.Schema + "." + p.name,
			Text:   fmt.Sprintf("The index %s is not valid, because building it has failed, so no query uses it.", name),
			Remedy: "REINDEX INDEX CONCURRENTLY " + name + ";",
		})
	}
	return nil
}
