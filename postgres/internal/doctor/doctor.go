// Package doctor looks for faults of a PostgreSQL database that has the tables of a store.
package doctor

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

const (
	// sqlParts lists the parts $2 of the schema $1 that exist.
	sqlParts = `SELECT c.relname::text, CASE c.relkind WHEN 'v' THEN 'view' WHEN 'i' THEN 'index' WHEN 'I' THEN 'index' ELSE 'table' END,
	coalesce(i.indisvalid, true)
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace LEFT JOIN pg_index AS i ON i.indexrelid = c.oid
WHERE n.nspname = $1::text AND c.relname = ANY ($2::text[])
UNION ALL SELECT p.proname::text, 'function', true FROM pg_proc AS p JOIN pg_namespace AS n ON n.oid = p.pronamespace
WHERE n.nspname = $1::text AND p.proname = ANY ($2::text[])`

	// sqlSequence reads how the sequence $2 of the schema $1 gives its numbers.
	sqlSequence = `SELECT s.seqcache, s.seqcycle, s.seqincrement FROM pg_sequence AS s JOIN pg_class AS c ON c.oid = s.seqrelid
JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = $1::text AND c.relname = $2::text`
)

// Database is what is examined.
type Database struct {
	// Query calls row for each row of a statement. It runs the statement with pg_catalog as the search path.
	Query func(ctx context.Context, sql string, args []any, row func(scan func(into ...any) error) error) error
	// Schema and Prefix are those of the tables.
	Schema, Prefix string
	// Parts are what the schema must have.
	Parts []sqlkit.Part
	// Rights are those that each task needs. Reserved are the functions that the tasks do not call.
	Rights   map[roles.Task][]Right
	Reserved []string
	// Sequence gives the places of rows; "" is not examined.
	Sequence string
}

// Examine adds what it finds. The clock is not its business, because each store has its own.
func (d Database) Examine(ctx context.Context, request roles.ExamineRequest, e *roles.Examination) error {
	for _, step := range []func() error{
		func() error { return d.parts(ctx, e) },
		func() error { return d.sequence(ctx, e) },
		func() error { return d.rights(ctx, request, e) },
		func() error { return d.transactions(ctx, request, e) },
		func() error { return d.locks(ctx, request, e) },
		func() error { return d.slots(ctx, request, e) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// AddQueue adds a finding if the queue of notifications is too full. usage is pg_notification_queue_usage().
func AddQueue(request roles.ExamineRequest, usage float64, e *roles.Examination) {
	if usage <= request.QueueUsage {
		return
	}
	e.Add(roles.Finding{
		Code: "notify_queue", Subject: "NOTIFY queue",
		Text: fmt.Sprintf("PostgreSQL's queue of notifications is %.2g %% full, because a session listens and stays in a transaction. "+
			"From 50 %% on, appends wake no readers; a full queue fails the commits of other programs that notify.", usage*100),
		Remedy: "End that session: old_transaction names it if it is older than the limit, else look for the oldest xact_start in " +
			"pg_stat_activity. Any program on the server, in any database, may be the one.",
	})
}

// part is a part of the schema with the name that it has there.
type part struct{ kind, name string }

func (d Database) named() []part {
	named := make([]part, len(d.Parts))
	for i, p := range d.Parts {
		named[i] = part{p.Kind, d.Prefix + p.Name}
	}
	return named
}

func (d Database) parts(ctx context.Context, e *roles.Examination) error {
	parts := d.named()
	names := make([]string, len(parts))
	for i, p := range parts {
		names[i] = p.name
	}
	var there, invalid []part
	err := d.Query(ctx, sqlParts, []any{d.Schema, names}, func(scan func(...any) error) error {
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
		e.Add(storekit.MissingPart(p.kind, d.Schema+"."+p.name, effect, failure))
	}
	for _, p := range invalid {
		name := pgx.Identifier{d.Schema, p.name}.Sanitize()
		e.Add(roles.Finding{
			Code: "index_invalid", Subject: d.Schema + "." + p.name,
			Text:   fmt.Sprintf("The index %s is not valid, because building it has failed, so no query uses it.", name),
			Remedy: "REINDEX INDEX CONCURRENTLY " + name + ";",
		})
	}
	return nil
}

// sequence looks at a sequence whose numbers must come in the order of the calls.
func (d Database) sequence(ctx context.Context, e *roles.Examination) error {
	if d.Sequence == "" {
		return nil
	}
	return d.Query(ctx, sqlSequence, []any{d.Schema, d.Prefix + d.Sequence}, func(scan func(...any) error) error {
		var cache, step int64
		var cycles bool
		if err := scan(&cache, &cycles, &step); err != nil {
			return err
		}
		if cache == 1 && !cycles && step == 1 {
			return nil
		}
		name := pgx.Identifier{d.Schema, d.Prefix + d.Sequence}.Sanitize()
		e.Add(roles.Finding{
			Code: "sequence_order", Failure: true, Subject: d.Schema + "." + d.Prefix + d.Sequence,
			Text: fmt.Sprintf("The sequence %s does not count in the order of the appends: somebody has changed it to CACHE %d, INCREMENT %d%s. "+
				"Records of a key are then delivered in another order.", name, cache, step, map[bool]string{true: ", CYCLE"}[cycles]),
			Remedy: "ALTER SEQUENCE " + name + " INCREMENT 1 CACHE 1 NO CYCLE;",
		})
		return nil
	})
}
