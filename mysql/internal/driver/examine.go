package driver

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit/sqlkit"
)

var _ roles.Examiner = (*Driver)(nil)

const (
	sqlSettings = `SELECT CAST(CURRENT_USER() AS CHAR), @@log_bin, CAST(@@binlog_format AS CHAR),
	@@global.innodb_flush_log_at_trx_commit, @@global.read_only, @@max_allowed_packet`

	// sqlOldTransactions finds transactions that are open for a long time, and sqlLockWaits those that wait for a lock. Both need the right
	// PROCESS.
	sqlOldTransactions = `SELECT t.trx_mysql_thread_id, TIMESTAMPDIFF(SECOND, t.trx_started, NOW()) FROM information_schema.innodb_trx AS t
WHERE t.trx_started < TIMESTAMPADD(MICROSECOND, -(?), NOW()) AND t.trx_mysql_thread_id > 0 ORDER BY t.trx_started LIMIT 20`
	sqlLockWaits = `SELECT t.trx_mysql_thread_id, TIMESTAMPDIFF(SECOND, t.trx_wait_started, NOW()) FROM information_schema.innodb_trx AS t
WHERE t.trx_wait_started < TIMESTAMPADD(MICROSECOND, -(?), NOW()) AND LOCATE(?, t.trx_query) > 0 ORDER BY t.trx_wait_started LIMIT 20`
)

// needed are the rights of a program on the tables, by their names without the prefix: what each program needs, and what one that reads
// needs besides.
var needed = []struct {
	table, column string
	both, reads   []string
}{
	{"meta", "version", []string{"SELECT"}, []string{"UPDATE"}},
	{"records", "id", []string{"SELECT", "INSERT"}, []string{"UPDATE", "DELETE"}},
	{"notes", "name", []string{"SELECT"}, []string{"INSERT", "UPDATE", "DELETE"}},
	{"entries", "name", []string{"SELECT", "INSERT", "UPDATE"}, []string{"DELETE"}},
	{"lines", "grp", nil, []string{"SELECT", "INSERT", "UPDATE", "DELETE"}},
}

// trials are statements that find no row: each says whether a right is there, whatever role or grant it comes from.
var trials = map[string]string{
	"SELECT": `SELECT 1 FROM ?1 LIMIT 0`,
	"INSERT": `INSERT INTO ?1 (?2) SELECT ?2 FROM ?1 WHERE 1 = 0`,
	"UPDATE": `UPDATE ?1 SET ?2 = ?2 WHERE 1 = 0`,
	"DELETE": `DELETE FROM ?1 WHERE 1 = 0`,
}

// Examine looks for a missing part of the schema, a missing right, settings with which the store fails or loses commits, and sessions
// that hold up others. See roles.Examiner.
func (d *Driver) Examine(ctx context.Context, request roles.ExamineRequest) (e roles.Examination, err error) {
	version, err := d.versionNow(ctx)
	if err == nil {
		err = version.Check(schemaVersion)
	}
	if err != nil {
		return e, err
	}
	err = d.in(ctx, func(own *sql.Tx) error { return d.on(own).examine(ctx, request, &e) })
	return e, err
}

func (t *tx) examine(ctx context.Context, request roles.ExamineRequest, e *roles.Examination) error {
	for _, examine := range []func() error{
		func() error { return t.examineParts(ctx, e) },
		func() error { return t.examineRights(ctx, request, e) },
		func() error { return t.examineSettings(ctx, e) },
		func() error { return t.examineSessions(ctx, request, e) },
	} {
		if err := examine(); err != nil {
			return err
		}
	}
	return nil
}

func (t *tx) examineParts(ctx context.Context, e *roles.Examination) error {
	parts, err := sqlkit.Parts(schemaFiles, "schema")
	if err != nil {
		return err
	}
	there, err := list(ctx, t, sqlkit.One[string], sqlTables, sqlkit.PartNames(parts, t.d.config.Prefix))
	if err == nil {
		sqlkit.Examine(e, parts, t.d.config.Prefix, there)
	}
	return err
}

func (t *tx) examineRights(ctx context.Context, request roles.ExamineRequest, e *roles.Examination) error {
	reads := slices.Contains(request.Tasks, roles.TaskRead)
	for _, n := range needed {
		if len(request.Tasks) == 0 {
			return nil
		}
		for _, right := range n.both {
			if err := t.tryRight(ctx, e, right, n.table, n.column, "publish and read"); err != nil {
				return err
			}
		}
		for _, right := range n.reads {
			if !reads {
				continue
			}
			if err := t.tryRight(ctx, e, right, n.table, n.column, "read"); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *tx) tryRight(ctx context.Context, e *roles.Examination, right, table, column, tasks string) error {
	name := t.d.config.Prefix + table
	err := t.run(ctx, trials[right], fragment("`"+name+"`"), fragment(column))
	switch number(err) {
	case errNoRight, errNoRightDB, errNoRightColumn:
		e.Add(roles.Finding{
			Code: "right_missing", Failure: true, Subject: right + " ON " + name,
			Text:   fmt.Sprintf("The user lacks %s on the table %s, which it needs to %s.", right, name, tasks),
			Remedy: fmt.Sprintf("GRANT %s ON %s TO the user; docs/mysql.md lists all rights.", right, name),
		})
	case errNoTable, errNoColumn, errNoDefault:
		// A table is among the missing parts; a column without a value is missed only behind the rights.
	default:
		return err
	}
	return nil
}

// smallPacket is the max_allowed_packet of a MariaDB that nobody has changed.
const smallPacket = 16 << 20

func (t *tx) examineSettings(ctx context.Context, e *roles.Examination) error {
	var user, format string
	var logs, readOnly bool
	var flush, packet int
	err := t.each(ctx, func(scan scan) error { return scan(&user, &logs, &format, &flush, &readOnly, &packet) }, sqlSettings)
	if err != nil {
		return err
	}
	if logs && strings.EqualFold(format, "STATEMENT") {
		e.Add(roles.Finding{
			Code: "binlog_format", Failure: true, Subject: "binlog_format=STATEMENT",
			Text:   "With this format of its binary log the server refuses writes of READ COMMITTED transactions (error 1665).",
			Remedy: "SET GLOBAL binlog_format = 'ROW' (or MIXED), and the same in the server's configuration.",
		})
	}
	if readOnly {
		e.Add(roles.Finding{
			Code: "read_only", Subject: "read_only=ON",
			Text:   "The server is read-only for users without a special right, as a replica is, so the store can neither append nor claim.",
			Remedy: "Connect to the primary.",
		})
	}
	if flush != 1 {
		e.Add(roles.Finding{
			Code: "durability", Subject: fmt.Sprintf("innodb_flush_log_at_trx_commit=%d", flush),
			Text:   "The server does not wait for the disk when it commits: a crash may lose messages, and business data, of the last second.",
			Remedy: "SET GLOBAL innodb_flush_log_at_trx_commit = 1, unless you accept that.",
		})
	}
	if packet < smallPacket {
		e.Add(roles.Finding{
			Code: "max_allowed_packet", Subject: fmt.Sprintf("max_allowed_packet=%d", packet),
			Text:   "The server takes no larger statement, so a larger payload is refused.",
			Remedy: "Raise max_allowed_packet, or publish references to large data.",
		})
	}
	return nil
}

func (t *tx) examineSessions(ctx context.Context, request roles.ExamineRequest, e *roles.Examination) error {
	find := func(template string, values []any, add func(session, seconds int64)) error {
		return t.each(ctx, func(scan scan) error {
			var session, seconds int64
			err := scan(&session, &seconds)
			add(session, seconds)
			return err
		}, template, values...)
	}
	err := find(sqlOldTransactions, []any{request.OpenTransaction.Microseconds()}, func(session, seconds int64) {
		e.Add(roles.Finding{
			Code: "old_transaction", Subject: fmt.Sprintf("session %d", session), Since: time.Now().Add(-time.Duration(seconds) * time.Second),
			Text: fmt.Sprintf("Session %d has had a transaction open for %d s. InnoDB keeps the rows that were deleted since, "+
				"and claims read over them.", session, seconds),
			Remedy: fmt.Sprintf("Look for its program in information_schema.processlist, and end the transaction, or KILL %d.", session),
		})
	})
	if err == nil {
		err = find(sqlLockWaits, []any{request.LockWait.Microseconds(), t.d.config.Prefix}, func(session, seconds int64) {
			e.Add(roles.Finding{
				Code: "lock_wait", Failure: true, Subject: fmt.Sprintf("session %d", session),
				Text:   fmt.Sprintf("Session %d waits for a lock on a table of the store for %d s.", session, seconds),
				Remedy: "SHOW ENGINE INNODB STATUS names the transaction that has the lock: end it.",
			})
		})
	}
	if number(err) == errNoProcess {
		e.Skip("Old transactions and lock waits were not examined: the user lacks the right PROCESS.")
		return nil
	}
	return err
}
