package memstore

import (
	"context"
	"time"

	"github.com/outmill/outmill/storekit"
)

// audit notes a change of count records, in the entry of its command if that has one.
func (d *Database) audit(entry storekit.AuditEntry, count int, now time.Time) {
	if count == 0 {
		return
	}
	for i := range d.audited {
		if e := &d.audited[i]; e.Command == entry.Command {
			if e.Action != entry.Action {
				e.Count = 0
			}
			e.Count, e.Action, e.AuditDetails = e.Count+count, entry.Action, entry.AuditDetails
			return
		}
	}
	d.audits++
	entry.Number, entry.At, entry.Count = d.audits, now, count
	d.audited = append(d.audited, entry)
}

// AuditEntries returns the newest entries with a smaller number.
func (w bench) AuditEntries(ctx context.Context, operation string, before int64, limit int) (list []storekit.AuditEntry, err error) {
	err = w.do(ctx, operation, func(d *Database, _ time.Time) error {
		for i := len(d.audited) - 1; i >= 0 && len(list) < limit; i-- {
			if e := d.audited[i]; e.Number < before {
				e.Command = ""
				list = append(list, e)
			}
		}
		return nil
	})
	return list, err
}

// DeleteOldAudit deletes entries that are older than Options.RetainAudit. See storekit.Audit.
func (s *Store) DeleteOldAudit(ctx context.Context, limit int) (int, error) {
	return s.count(ctx, "delete old audit entries", limit, func(d *Database, now time.Time) (n int) {
		for n < min(limit, len(d.audited)) && d.audited[n].At.Before(now.Add(-s.options.RetainAudit)) {
			n++
		}
		d.audited = d.audited[n:]
		return n
	})
}
