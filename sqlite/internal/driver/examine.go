package driver

import (
	"context"
	"fmt"
	"os"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// largeWAL is a size of the log that SQLite's automatic checkpoints reach only if a reader stays open: they begin at 4 MiB.
const largeWAL = 64 << 20

const (
	sqlMainFile = `SELECT file FROM pragma_database_list WHERE name = 'main'`
	sqlParts    = `SELECT name FROM sqlite_master`
)

var _ roles.Examiner = (*Driver)(nil)

// Examine looks for a missing part of the schema, a file that may not be written, a write lock that another
// connection keeps, and a log that a reader keeps from being emptied. The clock of SQLite is that of this machine,
// and the file's rights are those of the operating system. See roles.Examiner.
func (d *Driver) Examine(ctx context.Context, request roles.ExamineRequest) (e roles.Examination, err error) {
	if err := d.whileBusy(ctx, func() error { return d.checkSchema(ctx, d.db) }); err != nil {
		return e, err
	}
	if err := d.examineParts(ctx, &e); err != nil {
		return e, err
	}
	var file string
	if err := d.db.QueryRowContext(ctx, sqlMainFile).Scan(&file); err != nil {
		return e, err
	}
	if file == "" {
		e.Skip("The write lock and the log were not examined: the database is in memory.")
		return e, nil
	}
	if err := d.examineLock(ctx, request, &e); err != nil {
		return e, err
	}
	return e, d.examineLog(ctx, file, &e)
}

func (d *Driver) examineParts(ctx context.Context, e *roles.Examination) error {
	parts, err := sqlkit.Parts(schemaFiles, "schema")
	if err != nil {
		return err
	}
	there, err := d.plain(d.db).texts(ctx, sqlParts)
	if err == nil {
		sqlkit.Examine(e, parts, d.config.Prefix, there)
	}
	return err
}

// examineLock takes the write lock, changes nothing under it, and gives it back. It waits for the lock itself, because
// the busy_timeout of a connection is the user's.
func (d *Driver) examineLock(ctx context.Context, request roles.ExamineRequest, e *roles.Examination) error {
	err := storekit.RepeatFor(ctx, request.LockWait, newWaits(), isBusy, func() error {
		return d.once(ctx, sqlLock, func(*tx) error { return nil })
	})
	switch {
	case isBusy(err):
		e.Add(roles.Finding{
			Code: "lock_wait", Failure: true, Subject: "write lock",
			Text: fmt.Sprintf("Another connection has had the write lock of the database for %v at least. Appends, claims and acks wait for it.",
				request.LockWait),
			Remedy: "Look for a transaction that stays open in this process or another, such as one during a call to another service: " +
				"SQLite does not say whose it is.",
		})
	case code(err) == sqlite3.SQLITE_READONLY:
		e.Add(roles.Finding{
			Code: "right_missing", Failure: true, Subject: "write access to the file",
			Text:   "The database is read-only for this process, so it can neither append nor claim.",
			Remedy: "Give the user of the process write access to the file and its folder, and remove mode=ro from the URL.",
		})
	default:
		return err
	}
	return nil
}

func (d *Driver) examineLog(ctx context.Context, file string, e *roles.Examination) error {
	var mode string
	if err := d.db.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
		return err
	}
	if mode != "wal" {
		e.Add(roles.Finding{
			Code: "journal_mode", Subject: "journal_mode=" + mode,
			Text:   "The database has no write-ahead log, so each write waits for all readers, and they for it.",
			Remedy: "Run PRAGMA journal_mode=WAL once, or open the database with sqlite.Open.",
		})
		return nil
	}
	info, err := os.Stat(file + "-wal")
	if err != nil {
		e.Skip("The size of the log was not examined: this process cannot see the file %s-wal.", file)
		return nil //nolint:nilerr // SQLite itself can use the database.
	}
	if info.Size() < largeWAL {
		return nil
	}
	// The file keeps its size after a peak. What a checkpoint cannot write is what a reader needs.
	var busy, pages, written int
	if err := d.db.QueryRowContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &pages, &written); err != nil {
		return err
	}
	if written < pages {
		e.Add(roles.Finding{
			Code: "old_transaction", Subject: file + "-wal",
			Text: fmt.Sprintf("The write-ahead log has %d MiB and a reader keeps SQLite from emptying it, so it grows and reads become slower.",
				info.Size()>>20),
			Remedy: "Look for a read transaction or an open result set that some process keeps: SQLite does not say whose it is.",
		})
	}
	return nil
}
