// Package importsql moves the messages that wait in the PostgreSQL tables of watermill-sql
// into a store.
//
// A batch is appended to the store first; then the source notes that it is read, in the same
// way as watermill-sql's own subscriber. A move that is killed in between appends the batch
// again when it is repeated, and the dedup keys of the rows make that a no-op, within the
// store's dedup window.
package importsql

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// Options select the messages of a move.
type Options struct {
	// Topic is that of watermill-sql; its tables are watermill_<Topic> and
	// watermill_offsets_<Topic>.
	Topic string
	// Group is the consumer group whose position is where the move begins.
	Group string
	// FromStart moves all rows if the group has read nothing yet.
	FromStart bool
	// As is the topic in the store; "" is Topic. Enveloped messages have their own.
	As string
	// Enveloped says that the messages are envelopes of Watermill's forwarder component.
	Enveloped bool
	// KeyFrom names metadata whose value becomes the key; "" is none.
	KeyFrom string
	// Delays says what Watermill's delay in the metadata of a row means.
	Delays Delays
	// Batch is the number of rows of one step.
	Batch int
	// Wait is how long the move waits for older transactions of the server, without any
	// progress. watermill-sql reads a row only when no transaction is open that began before
	// it, because such a transaction may still commit a row in front of it.
	Wait time.Duration
}

// Delays says what Watermill's delay in the metadata of a row means. Only the reader of a delayed
// table heeds it, and the metadata may have come in with the message.
type Delays string

const (
	// DelaysRefused stops the move in front of a row that would wait.
	DelaysRefused Delays = ""
	// DelaysKept postpones the message, and removes the two entries of the delay.
	DelaysKept Delays = "keep"
	// DelaysIgnored moves the entries as data.
	DelaysIgnored Delays = "ignore"
)

// table is a topic as watermill-sql keeps it.
type table struct {
	Options
	// queue says that it is of PostgreSQLQueueSchema, where each row is marked as read.
	queue bool
	// messages and offsets are quoted.
	messages, offsets string
}

// find looks at the tables of the topic and checks that the group can be right.
func find(ctx context.Context, db *sql.DB, o Options) (table, error) {
	named := func(prefix string) string { return pgx.Identifier{prefix + o.Topic}.Sanitize() }
	t := table{Options: o, messages: named("watermill_"), offsets: named("watermill_offsets_")}
	columns, err := texts(ctx, db,
		`SELECT attname FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped`, t.messages)
	if err != nil {
		return t, err
	}
	switch {
	case len(columns) == 0:
		return t, fmt.Errorf("there is no table %s: check --topic, and the database and search_path of --from", t.messages)
	case slices.Contains(columns, "transaction_id"):
		return t, t.checkGroup(ctx, db)
	case slices.Contains(columns, "acked"):
		t.queue = true
		return t, nil
	}
	return t, fmt.Errorf("the table %s is none of watermill-sql's PostgreSQL schemas: it has neither transaction_id nor acked", t.messages)
}

// checkGroup refuses a group that has read nothing, because a typing error would move all
// that was read long ago.
func (t table) checkGroup(ctx context.Context, db *sql.DB) error {
	var exists bool
	if err := db.QueryRowContext(ctx, `SELECT to_regclass($1) IS NOT NULL`, t.offsets).Scan(&exists); err != nil {
		return err
	}
	if !exists {
		return fmt.Errorf("there is no table %s, which has the positions of the groups, because no subscriber of watermill-sql has run on the "+
			"topic: call SubscribeInitialize(%q) of its subscriber once, and then move all rows with --from-start", t.offsets, t.Topic)
	}
	if t.FromStart {
		return nil
	}
	groups, err := texts(ctx, db, `SELECT consumer_group FROM `+t.offsets+` ORDER BY 1`)
	if err != nil {
		return err
	}
	if slices.Contains(groups, t.Group) {
		return nil
	}
	return fmt.Errorf("the consumer group %q has read nothing of %s (groups that have: %q): check --consumer-group, "+
		"or move all with --from-start", t.Group, t.messages, groups)
}

func texts(ctx context.Context, db *sql.DB, query string, args ...any) ([]string, error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var all []string
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, rows.Err()
}

// waiting counts the committed rows that are still to be moved.
func (t table) waiting(ctx context.Context, db *sql.DB) (n int, err error) {
	if t.queue {
		err = db.QueryRowContext(ctx, `SELECT count(*) FROM `+t.messages+` WHERE NOT acked`).Scan(&n)
		return n, err
	}
	err = db.QueryRowContext(ctx, `SELECT count(*) FROM `+t.messages+` WHERE (transaction_id, "offset") > (
		coalesce((SELECT last_processed_transaction_id FROM `+t.offsets+` WHERE consumer_group = $1), '0'),
		coalesce((SELECT offset_acked FROM `+t.offsets+` WHERE consumer_group = $1), 0))`, t.Group).Scan(&n)
	return n, err
}

// prepare gives a group that begins its row, which the steps lock.
func (t table) prepare(ctx context.Context, db *sql.DB) error {
	if t.queue {
		return nil
	}
	_, err := db.ExecContext(ctx, `INSERT INTO `+t.offsets+` (consumer_group, offset_acked, last_processed_transaction_id)
		VALUES ($1, 0, '0') ON CONFLICT DO NOTHING`, t.Group)
	return err
}

// row is one message of a table.
type row struct {
	offset      int64
	transaction string
	uuid        string
	payload     []byte
	metadata    []byte
}

// next locks the position of the group, or the rows of a queue, against other readers, and
// returns the next rows.
func (t table) next(ctx context.Context, tx *sql.Tx) ([]row, error) {
	if t.queue {
		return scan(tx.QueryContext(ctx, `SELECT "offset", '', uuid, payload, metadata FROM `+t.messages+
			` WHERE NOT acked ORDER BY "offset" LIMIT $1 FOR UPDATE`, t.Batch))
	}
	var acked int64
	var transaction string
	if err := tx.QueryRowContext(ctx, `SELECT coalesce(offset_acked, 0), last_processed_transaction_id::text FROM `+t.offsets+
		` WHERE consumer_group = $1 FOR UPDATE`, t.Group).Scan(&acked, &transaction); err != nil {
		return nil, err
	}
	// What an older open transaction may still precede waits, as with watermill-sql.
	return scan(tx.QueryContext(ctx, `SELECT "offset", transaction_id::text, uuid, payload, metadata FROM `+t.messages+`
		WHERE (transaction_id, "offset") > ($1::text::xid8, $2) AND transaction_id < pg_snapshot_xmin(pg_current_snapshot())
		ORDER BY transaction_id, "offset" LIMIT $3`, transaction, acked, t.Batch))
}

func scan(rows *sql.Rows, err error) ([]row, error) {
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	var all []row
	for rows.Next() {
		var r row
		if err := rows.Scan(&r.offset, &r.transaction, &r.uuid, &r.payload, &r.metadata); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, rows.Err()
}

// done notes that the rows are read.
func (t table) done(ctx context.Context, tx *sql.Tx, rows []row) error {
	if t.queue {
		offsets := make([]int64, len(rows))
		for i, r := range rows {
			offsets[i] = r.offset
		}
		_, err := tx.ExecContext(ctx, `UPDATE `+t.messages+` SET acked = true WHERE "offset" = ANY($1)`, offsets)
		return err
	}
	last := rows[len(rows)-1]
	_, err := tx.ExecContext(ctx, `UPDATE `+t.offsets+` SET offset_acked = $1, last_processed_transaction_id = $2::text::xid8
		WHERE consumer_group = $3`, last.offset, last.transaction, t.Group)
	return err
}
