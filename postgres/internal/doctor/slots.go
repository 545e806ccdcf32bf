package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/outmill/outmill/roles"
)

const (
	// mostBehind is how many transactions a standby that reads its slot may hold rows back for. A
	// slot has no time since when.
	mostBehind = 1_000_000

	// sqlSlots lists the replication slots of the server that keep deleted rows (xmin) although
	// nobody reads them, or for more than $2 transactions, or that keep more than $1 bytes of the
	// write-ahead log.
	sqlSlots = `SELECT slot_name, active, behind, kept, format('SELECT pg_drop_replication_slot(%L);', slot_name) FROM (
	SELECT slot_name::text, active, coalesce(age(xmin), -1) AS behind, coalesce(pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery()
		THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END, restart_lsn), 0)::bigint AS kept FROM pg_replication_slots) AS s
WHERE kept > $1::bigint OR behind > $2::bigint OR behind >= 0 AND NOT active ORDER BY kept DESC, behind DESC LIMIT $3::bigint`
)

func (d Database) slots(ctx context.Context, request roles.ExamineRequest, e *roles.Examination) error {
	return d.Query(ctx, sqlSlots, []any{request.RetainedWAL, mostBehind, mostSessions}, func(scan func(...any) error) error {
		var name, drop string
		var active bool
		var behind, kept int64
		if err := scan(&name, &active, &behind, &kept, &drop); err != nil {
			return err
		}
		e.Add(slotFinding(name, drop, active, behind, kept, request.RetainedWAL))
		return nil
	})
}

func slotFinding(name, drop string, active bool, behind, kept, limit int64) roles.Finding {
	f := roles.Finding{Code: "replication_slot", Subject: fmt.Sprintf("replication slot %q", name)}
	text := []string{fmt.Sprintf("The %s lags behind.", f.Subject)}
	f.Remedy = "Find out why its reader is slow: a long query of a standby with hot_standby_feedback holds rows back."
	if !active {
		text = []string{fmt.Sprintf("Nobody reads the %s.", f.Subject)}
		f.Remedy = "Start its standby or subscription. If nobody needs it any more: " + drop
	}
	if behind > mostBehind || behind >= 0 && !active {
		text = append(text, fmt.Sprintf("PostgreSQL removes no row that was deleted in the last %d transactions, so tables grow and "+
			"claims become slower.", behind))
	}
	if kept > limit {
		text = append(text, fmt.Sprintf("It keeps %d MB of the write-ahead log, so the disk fills.", kept>>20))
		f.Remedy += " max_slot_wal_keep_size limits what a slot keeps."
	}
	f.Text = strings.Join(text, " ")
	return f
}
