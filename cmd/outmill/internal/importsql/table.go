// Package importsql moves the messages that wait in tables of watermill-sql, on PostgreSQL or
// on MySQL or MariaDB, into a store.
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
)

// Options select the messages of a move.
type Options struct {
	// MySQL says that the source is a MySQL or MariaDB, and no PostgreSQL.
	MySQL bool
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

// source is a topic as watermill-sql keeps it in one kind of database.
type source interface {
	// name is that of the table of the messages, quoted.
	name() string
	// level is the isolation level of a step.
	level() sql.IsolationLevel
	// waiting counts the committed rows that are still to be moved.
	waiting(ctx context.Context, db *sql.DB) (int, error)
	// prepare gives a group that begins its row, which the steps lock.
	prepare(ctx context.Context, db *sql.DB) error
	// next locks the position of the group, or the rows of a queue, against other readers, and
	// returns the next rows.
	next(ctx context.Context, tx *sql.Tx) ([]row, error)
	// done notes that the rows are read.
	done(ctx context.Context, tx *sql.Tx, rows []row) error
}

// move is one run.
type move struct {
	Options
	source
}

// find looks at the tables of the topic and checks that the group can be right.
func find(ctx context.Context, db *sql.DB, o Options) (m move, err error) {
	m.Options = o
	if o.MySQL {
		m.source, err = findMySQL(ctx, db, o)
	} else {
		m.source, err = findPostgres(ctx, db, o)
	}
	return m, err
}

// table is a topic and its positions, quoted.
type table struct {
	Options
	messages, offsets string
}

func (t table) name() string { return t.messages }

func (t table) missing() error {
	return fmt.Errorf("there is no table %s: check --topic, and the database (on PostgreSQL also the search_path) of --from", t.messages)
}

// checkGroup refuses a group that has read nothing, because a typing error would move all
// that was read long ago. exists says whether there is the table of the positions.
func (t table) checkGroup(ctx context.Context, db *sql.DB, exists bool) error {
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

// row is one message of a table.
type row struct {
	offset      int64
	transaction string
	uuid        string
	payload     []byte
	metadata    []byte
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
