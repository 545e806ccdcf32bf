package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

const (
	sqlAudited = `SELECT number, changed_at, actor, action, count, details FROM {p:audit} WHERE number < $1::bigint
ORDER BY number DESC LIMIT $2::bigint`

	// sqlDeleteOldAudit looks at the oldest entries only, and needs no index on the time.
	sqlDeleteOldAudit = `WITH gone AS (DELETE FROM {p:audit}
	WHERE number IN (SELECT number FROM {p:audit} ORDER BY number LIMIT $1::bigint)
	AND changed_at < statement_timestamp() - $2::bigint * interval '1 microsecond' RETURNING 1)
SELECT count(*) FROM gone`
)

var sqlNote = noted(1, `(SELECT $5::bigint AS n) AS changed`)

// noted writes the entry of a change, whose actor, action, details and command are the arguments
// from first on, or adds to the entry of the command. changed has the number of records, n.
func noted(first int, changed string) string {
	return fmt.Sprintf(`INSERT INTO {p:audit} AS a (changed_at, actor, action, details, command, count)
	SELECT statement_timestamp(), $%d::text, $%d::text, $%d::text, $%d::text::uuid, n FROM %s WHERE n > 0
	ON CONFLICT (command) DO UPDATE SET count = CASE a.action WHEN excluded.action THEN a.count ELSE 0 END + excluded.count,
		action = excluded.action, details = excluded.details`, first, first+1, first+2, first+3, changed)
}

// entryArgs are the arguments of noted, behind others.
func entryArgs(entry roles.AuditEntry, others ...any) []any {
	return append(others, entry.Actor, string(entry.Action), entry.Details(), entry.Command)
}

// note writes the entry of a transaction that changes count records.
func note(entry roles.AuditEntry, count int) step {
	return step{template: sqlNote, args: append(entryArgs(entry), count)}
}

// AuditEntries returns the newest entries with a smaller number.
func (b bench) AuditEntries(ctx context.Context, operation string, before int64, limit int) ([]roles.AuditEntry, error) {
	var entries []roles.AuditEntry
	err := b.write(ctx, operation, func(ctx context.Context, t *txn) error {
		entries = nil
		return t.finish(ctx, step{template: sqlAudited, args: []any{before, limit}, row: func(scan func(...any) error) error {
			var e roles.AuditEntry
			var at pgtype.Timestamptz
			var details string
			if err := scan(&e.Number, &at, &e.Actor, &e.Action, &e.Count, &details); err != nil {
				return err
			}
			e.At = utc(at)
			entries = append(entries, e)
			return entries[len(entries)-1].SetDetails(details)
		}})
	})
	return entries, err
}

// DeleteOldAudit deletes entries that are older than Config.RetainAudit. See roles.Repairs.
func (s *Store) DeleteOldAudit(ctx context.Context, limit int) (deleted int, err error) {
	const operation = "delete old audit entries"
	if err := storekit.CheckLimit(limit); err != nil {
		return 0, s.explain(ctx, operation, err)
	}
	err = s.writeAll(ctx, operation, step{
		template: sqlDeleteOldAudit, args: []any{limit, s.config.RetainAudit.Microseconds()},
		row: func(scan func(...any) error) error { return scan(&deleted) },
	})
	return deleted, err
}
