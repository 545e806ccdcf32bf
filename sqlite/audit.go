package sqlite

import (
	"context"
	"database/sql"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

const (
	sqlNote = `INSERT INTO {p:audit} AS a (changed_at, actor, action, count, details, command) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (command) DO UPDATE SET count = CASE a.action WHEN excluded.action THEN a.count ELSE 0 END + excluded.count,
	action = excluded.action, details = excluded.details`

	sqlAudited = `SELECT number, changed_at, actor, action, count, details FROM {p:audit} WHERE number < ?1 ORDER BY number DESC LIMIT ?2`

	// sqlDeleteOldAudit looks at the oldest entries only, and needs no index on the time.
	sqlDeleteOldAudit = `DELETE FROM {p:audit} WHERE number IN (SELECT number FROM {p:audit} ORDER BY number LIMIT ?2) AND changed_at < ?1`
)

// audit notes that the transaction changes count records.
func (t *txn) audit(ctx context.Context, entry roles.AuditEntry, count int) error {
	if count == 0 {
		return nil
	}
	_, err := t.exec(ctx, sqlNote, t.now, entry.Actor, string(entry.Action), count, entry.Details(), entry.Command)
	return err
}

// AuditEntries returns the newest entries with a smaller number.
func (b bench) AuditEntries(ctx context.Context, operation string, before int64, limit int) (entries []roles.AuditEntry, err error) {
	err = b.read(ctx, operation, func(ctx context.Context, t *txn) (err error) {
		entries, err = list(ctx, t, scanEntry, sqlAudited, before, limit)
		return err
	})
	return entries, err
}

func scanEntry(rows *sql.Rows, e *roles.AuditEntry) error {
	var at int64
	var details string
	if err := rows.Scan(&e.Number, &at, &e.Actor, &e.Action, &e.Count, &details); err != nil {
		return err
	}
	e.At = timeOf(at)
	return e.SetDetails(details)
}

// DeleteOldAudit deletes entries that are older than Config.RetainAudit. See roles.Repairs.
func (s *Store) DeleteOldAudit(ctx context.Context, limit int) (deleted int, err error) {
	const operation = "delete old audit entries"
	err = storekit.CheckLimit(limit)
	if err != nil {
		return 0, s.explain(ctx, operation, err)
	}
	err = s.write(ctx, operation, func(ctx context.Context, t *txn) (err error) {
		deleted, err = t.exec(ctx, sqlDeleteOldAudit, t.now-s.config.RetainAudit.Microseconds(), limit)
		return err
	})
	return deleted, err
}
