package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill/postgres/internal/doctor"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit/sqlkit"
)

const sqlClockAndQueue = `SELECT clock_timestamp(), pg_notification_queue_usage()`

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
	parts, err := sqlkit.Parts(schemaFiles, "schema")
	if err != nil {
		return err
	}
	if err := s.examineWrites(ctx, e); err != nil {
		return err
	}
	logged, err := s.logIsOn(ctx)
	if err != nil {
		return err
	}
	database := doctor.Database{
		Query: s.rowsOf, Schema: s.config.Schema, Prefix: s.config.TablePrefix, Parts: parts,
		Rights: rightsOf(logged), Reserved: []string{"append"},
	}
	if err := database.Examine(ctx, request, e); err != nil {
		return err
	}
	s.conns.Examine(e)
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
	doctor.AddQueue(request, usage, e)
	return nil
}
