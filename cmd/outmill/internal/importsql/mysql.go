package importsql

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	driver "github.com/go-sql-driver/mysql"
)

// mysqlTable is a source in MySQL or MariaDB.
type mysqlTable struct{ table }

const (
	sqlTables = `SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = ?`

	errLockWait = 1205
	errDeadlock = 1213
)

func findMySQL(ctx context.Context, db *sql.DB, o Options) (source, error) {
	quoted := func(prefix string) string { return "`" + strings.ReplaceAll(prefix+o.Topic, "`", "``") + "`" }
	t := mysqlTable{table{Options: o, messages: quoted("watermill_"), offsets: quoted("watermill_offsets_")}}
	var messages, offsets bool
	err := errors.Join(
		db.QueryRowContext(ctx, sqlTables, "watermill_"+o.Topic).Scan(&messages),
		db.QueryRowContext(ctx, sqlTables, "watermill_offsets_"+o.Topic).Scan(&offsets),
	)
	switch {
	case err != nil:
		return t, err
	case !messages:
		return t, t.missing()
	}
	return t, t.checkGroup(ctx, db, offsets)
}

// level has a step wait for rows of open transactions, which may still be committed in front of others, as with watermill-sql.
func (mysqlTable) level() sql.IsolationLevel { return sql.LevelSerializable }

func (t mysqlTable) waiting(ctx context.Context, db *sql.DB) (n int, err error) {
	err = db.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+t.messages+" WHERE `offset` > COALESCE((SELECT offset_acked FROM "+t.offsets+
		" WHERE consumer_group = ?), 0)", t.Group).Scan(&n)
	return n, err
}

func (t mysqlTable) prepare(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, `INSERT INTO `+t.offsets+` (consumer_group, offset_acked, offset_consumed) VALUES (?, 0, 0)
		ON DUPLICATE KEY UPDATE consumer_group = VALUES(consumer_group)`, t.Group)
	return err
}

func (t mysqlTable) next(ctx context.Context, tx *sql.Tx) ([]row, error) {
	var acked int64
	err := tx.QueryRowContext(ctx, `SELECT COALESCE(offset_acked, 0) FROM `+t.offsets+` WHERE consumer_group = ? FOR UPDATE`,
		t.Group).Scan(&acked)
	if err != nil {
		return nil, unlessLocked(err)
	}
	rows, err := scan(tx.QueryContext(ctx, "SELECT `offset`, '', uuid, payload, metadata FROM "+t.messages+
		" WHERE `offset` > ? ORDER BY `offset` LIMIT ?", acked, t.Batch))
	return rows, unlessLocked(err)
}

// unlessLocked returns nil for the error of a lock that others have: the next step comes later.
func unlessLocked(err error) error {
	var e *driver.MySQLError
	if errors.As(err, &e) && (e.Number == errLockWait || e.Number == errDeadlock) {
		return nil
	}
	return err
}

func (t mysqlTable) done(ctx context.Context, tx *sql.Tx, rows []row) error {
	last := rows[len(rows)-1].offset
	_, err := tx.ExecContext(ctx, `UPDATE `+t.offsets+` SET offset_acked = ?, offset_consumed = ? WHERE consumer_group = ?`,
		last, last, t.Group)
	return err
}
