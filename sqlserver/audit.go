package sqlserver

import (
	"context"

	"github.com/outmill/outmill/roles"
)

const (
	sqlNote = `UPDATE [dbo].[OutboxAudit] SET Changed = CASE Action WHEN @action THEN Changed ELSE 0 END + @changed, Action = @action,
    Details = @details WHERE Command = CAST(@command AS UNIQUEIDENTIFIER);
IF @@ROWCOUNT = 0
    INSERT [dbo].[OutboxAudit] (ChangedAt, Actor, Action, Changed, Details, Command)
    VALUES (SYSUTCDATETIME(), @actor, @action, @changed, @details, CAST(@command AS UNIQUEIDENTIFIER))`

	sqlAudited = `SELECT TOP (@limit) Number, ChangedAt, Actor, Action, Changed, Details FROM [dbo].[OutboxAudit]` + notLocked + `
WHERE Number < @before ORDER BY Number DESC`

	// sqlDeleteOldAudit looks at the oldest entries only, and needs no index on the time.
	sqlDeleteOldAudit = asMaintenance + `DELETE FROM [dbo].[OutboxAudit] WHERE ChangedAt < ` + microsAgo + ` AND Number IN (
    SELECT TOP (@limit) Number FROM [dbo].[OutboxAudit] WITH (READCOMMITTEDLOCK, READPAST) ORDER BY Number);
SELECT @@ROWCOUNT`
)

// note is the call that notes that the transaction changes so many records, in the entry of its
// command if that has one.
func note(entry roles.AuditEntry, changed int) call {
	return call{template: sqlNote, args: []any{
		named("actor", entry.Actor), named("action", string(entry.Action)), named("changed", changed), named("details", entry.Details()),
		named("command", entry.Command),
	}}
}

// AuditEntries returns the newest entries with a smaller number.
func (b bench) AuditEntries(ctx context.Context, operation string, before int64, limit int) (entries []roles.AuditEntry, err error) {
	err = b.run(ctx, operation, call{
		template: sqlAudited, args: []any{named("limit", limit), named("before", before)}, looks: true, reset: func() { entries = nil },
		sets: []reader{func(scan func(...any) error) error {
			var e roles.AuditEntry
			var details string
			if err := scan(&e.Number, &e.At, &e.Actor, &e.Action, &e.Count, &details); err != nil {
				return err
			}
			e.At = e.At.UTC()
			err := e.SetDetails(details)
			entries = append(entries, e)
			return err
		}},
	})
	return entries, err
}

// DeleteOldAudit deletes entries that are older than Config.RetainAudit. See roles.Repairs.
func (s *Store) DeleteOldAudit(ctx context.Context, limit int) (int, error) {
	return s.tidy(ctx, "delete old audit entries", sqlDeleteOldAudit, "limit", limit, named("micros", s.config.RetainAudit.Microseconds()))
}
