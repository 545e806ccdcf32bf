package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/outmill/outmill/roles"
)

// mostSessions bounds the sessions of each kind in a report.
const mostSessions = 10

const (
	// sqlOldTransactions lists the transactions of the database that have been open for more than
	// $1 seconds and keep VACUUM from removing rows, the oldest first. Autovacuum is what removes them, and may take hours.
	sqlOldTransactions = `SELECT * FROM (
	SELECT format('session %s (%s)', a.pid, coalesce(nullif(a.application_name, ''), a.usename, a.backend_type)), a.state, a.xact_start,
		format('SELECT pg_terminate_backend(%s);', a.pid)
	FROM pg_stat_activity AS a
	WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND (a.backend_xid IS NOT NULL OR a.backend_xmin IS NOT NULL)
		AND a.backend_type IS DISTINCT FROM 'autovacuum worker'
	UNION ALL
	SELECT format('prepared transaction %L', p.gid), 'prepared', p.prepared,
		format('COMMIT PREPARED %L; or ROLLBACK PREPARED %L;', p.gid, p.gid)
	FROM pg_prepared_xacts AS p WHERE p.database = current_database()
) AS t (subject, state, since, remedy)
WHERE t.since < clock_timestamp() - $1::float8 * interval '1 second' ORDER BY t.since LIMIT $2::bigint`

	// sqlHiddenSessions is whether there are sessions whose state the user may not see.
	sqlHiddenSessions = `SELECT count(*), current_user::text FROM (SELECT 1 FROM pg_stat_activity AS a
	WHERE a.datname = current_database() AND a.usesysid IS NOT NULL AND a.query = '<insufficient privilege>' LIMIT 1) AS hidden`

	// sqlLockWaits lists the sessions that use a table of the schema $1 and have waited for a lock
	// for more than $2 seconds, with one that they wait for.
	sqlLockWaits = `SELECT format('session %s (%s)', a.pid, coalesce(nullif(a.application_name, ''), a.usename, a.backend_type)), w.since,
	w.locktype,
	coalesce(format('session %s (%s), %s since %s', b.pid, coalesce(nullif(b.application_name, ''), b.usename, b.backend_type),
		coalesce(b.state, 'in a state hidden from this user'),
		coalesce(to_char(b.xact_start AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'), 'an unknown time')),
		'an unknown session'), coalesce(b.pid, 0)
FROM (SELECT l.pid, min(l.waitstart) AS since, min(l.locktype) AS locktype FROM pg_locks AS l WHERE NOT l.granted GROUP BY l.pid) AS w
JOIN pg_stat_activity AS a ON a.pid = w.pid
LEFT JOIN LATERAL (SELECT s.* FROM pg_stat_activity AS s WHERE s.pid = ANY (pg_blocking_pids(w.pid)) 
	ORDER BY s.xact_start LIMIT 1) AS b ON true
WHERE w.since < clock_timestamp() - $2::float8 * interval '1 second' AND EXISTS (
	SELECT 1 FROM pg_locks AS u JOIN pg_class AS c ON c.oid = u.relation JOIN pg_namespace AS n ON n.oid = c.relnamespace
	WHERE u.pid = w.pid AND u.database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND n.nspname = $1::text AND starts_with(c.relname, $4::text))
ORDER BY w.since LIMIT $3::bigint`
)

func (d Database) transactions(ctx context.Context, request roles.ExamineRequest, e *roles.Examination) error {
	err := d.Query(ctx, sqlOldTransactions, []any{request.OpenTransaction.Seconds(), mostSessions}, func(scan func(...any) error) error {
		f := roles.Finding{Code: "old_transaction"}
		var state *string
		if err := scan(&f.Subject, &state, &f.Since, &f.Remedy); err != nil {
			return err
		}
		f.Text = fmt.Sprintf("The transaction of %s has been open since %s%s. PostgreSQL removes no row that was deleted since, so tables "+
			"grow and claims become slower.", f.Subject, f.Since.UTC().Format(time.RFC3339), inState(state))
		f.Remedy = "End it: " + f.Remedy + " To prevent it, set idle_in_transaction_session_timeout."
		e.Add(f)
		return nil
	})
	if err != nil {
		return err
	}
	return d.Query(ctx, sqlHiddenSessions, nil, func(scan func(...any) error) error {
		var hidden int
		var user string
		if err := scan(&hidden, &user); err != nil {
			return err
		}
		if hidden > 0 {
			e.Skip("The sessions of other users were not examined for old transactions, because %s may not see them: "+
				"GRANT pg_read_all_stats TO it.", user)
		}
		return nil
	})
}

func inState(state *string) string {
	if state == nil || *state == "" {
		return ""
	}
	return " (" + *state + ")"
}

func (d Database) locks(ctx context.Context, request roles.ExamineRequest, e *roles.Examination) error {
	args := []any{d.Schema, request.LockWait.Seconds(), mostSessions, d.Prefix}
	return d.Query(ctx, sqlLockWaits, args, func(scan func(...any) error) error {
		f := roles.Finding{Code: "lock_wait", Failure: true}
		var lock, blocker string
		var pid int
		if err := scan(&f.Subject, &f.Since, &lock, &blocker, &pid); err != nil {
			return err
		}
		f.Text = fmt.Sprintf("The %s has waited since %s for a lock (%s) of %s.", f.Subject, f.Since.UTC().Format(time.RFC3339), lock, blocker)
		f.Remedy = "Find out why that session holds its lock for so long, and end its transaction."
		if pid != 0 {
			f.Remedy += fmt.Sprintf(" SELECT pg_terminate_backend(%d);", pid)
		}
		e.Add(f)
		return nil
	})
}
