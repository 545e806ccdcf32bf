package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	sqlite3 "modernc.org/sqlite/lib"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

// largeWAL is a size of the log that SQLite's automatic checkpoints reach only if a reader stays
// open: they begin at 4 MiB.
const largeWAL = 64 << 20

const (
	sqlSchemaParts = `SELECT name FROM sqlite_master WHERE type IN ('table', 'index', 'view')`
	// sqlSameVersion fails if the file may not be written, which BEGIN IMMEDIATE does not.
	sqlSameVersion = `UPDATE {p:meta} SET version = version WHERE only_row = 1`
	sqlMainFile    = `SELECT file FROM pragma_database_list WHERE name = 'main'`
)

// Examine looks for a missing part of the schema, a file that may not be written, a write lock
// that another connection keeps, and a log that a reader keeps from being emptied. The clock of
// SQLite is that of this machine, and the file's rights are those of the operating system. See
// roles.Examiner.
func (s *Store) Examine(ctx context.Context, request roles.ExamineRequest) (roles.Examination, error) {
	var e roles.Examination
	err := s.usable(ctx)
	if err == nil {
		err = s.examine(ctx, request, &e)
	}
	return e, s.explain(ctx, "examine", err)
}

func (s *Store) examine(ctx context.Context, request roles.ExamineRequest, e *roles.Examination) error {
	if err := s.whileBusy(ctx, func() error { return s.checkSchema(ctx, s.db) }); err != nil {
		return err
	}
	if err := s.examineParts(ctx, e); err != nil {
		return err
	}
	var file string
	if err := s.db.QueryRowContext(ctx, sqlMainFile).Scan(&file); err != nil {
		return err
	}
	if file == "" {
		e.Skip("The write lock and the log were not examined: the database is in memory.")
		return nil
	}
	if err := s.examineLock(ctx, request, e); err != nil {
		return err
	}
	return s.examineLog(ctx, file, e)
}

func (s *Store) examineParts(ctx context.Context, e *roles.Examination) error {
	parts, err := sqlkit.Parts(schemaFiles, "schema")
	if err != nil {
		return err
	}
	names, err := s.texts(ctx, sqlSchemaParts)
	if err != nil {
		return err
	}
	for _, part := range parts {
		if name := s.sql.prefix + part.Name; !names[name] {
			effect := "Calls that name it fail."
			e.Add(storekit.MissingPart(part.Kind, name, effect, part.Kind != "view"))
		}
	}
	return nil
}

// texts returns the only column of the rows.
func (s *Store) texts(ctx context.Context, query string) (all map[string]bool, err error) {
	rows, err := s.db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	all = map[string]bool{}
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		all[text] = true
	}
	return all, rows.Err()
}

// examineLock takes the write lock, changes nothing under it, and gives it back.
func (s *Store) examineLock(ctx context.Context, request roles.ExamineRequest, e *roles.Examination) (err error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	err = s.tryLock(ctx, conn, request.LockWait)
	switch {
	case err == nil:
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

// tryLock waits for the lock itself, because the busy_timeout of a connection is the user's.
func (s *Store) tryLock(ctx context.Context, conn *sql.Conn, wait time.Duration) error {
	deadline := time.Now().Add(wait)
	waits := storekit.NewWaits(firstPause, lastPause)
	for {
		_, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE")
		if err == nil {
			_, err = conn.ExecContext(ctx, s.sql.text(sqlSameVersion))
			_, endErr := conn.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
			return errors.Join(err, endErr)
		}
		if !isBusy(err) || time.Now().After(deadline) {
			return err
		}
		if err := waits.Wait(ctx); err != nil {
			return err
		}
	}
}

func (s *Store) examineLog(ctx context.Context, file string, e *roles.Examination) error {
	var mode string
	if err := s.db.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode); err != nil {
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
	if err := s.db.QueryRowContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)").Scan(&busy, &pages, &written); err != nil {
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
