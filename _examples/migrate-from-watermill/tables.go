package main

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/jackc/pgx/v5"
)

// table is a topic as watermill-sql keeps it in PostgreSQL.
type table struct {
	topic, group string
	queue        bool
	// messages and offsets are quoted.
	messages, offsets string
}

func newTable(o options, topic string) table {
	named := func(pattern string) string {
		return pgx.Identifier{strings.Replace(pattern, "%s", topic, 1)}.Sanitize()
	}
	return table{topic: topic, group: o.group, queue: o.queue, messages: named(o.messages), offsets: named(o.offsets)}
}

func (t table) adapters(batch int) (wsql.SchemaAdapter, wsql.OffsetsAdapter) {
	messages := func(string) string { return t.messages }
	if t.queue {
		q := queueTable{messages: t.messages, batch: batch}
		return queueSchema{q}, queueOffsets{q}
	}
	schema := wsql.DefaultPostgreSQLSchema{GenerateMessagesTableName: messages, SubscribeBatchSize: batch}
	offsets := wsql.DefaultPostgreSQLOffsetsAdapter{GenerateMessagesOffsetsTableName: func(string) string { return t.offsets }}
	return logSchema{schema}, offsets
}

// check compares the flags with the tables before the first message is moved. A misspelt consumer
// group would move again all messages that were read before.
func (t table) check(ctx context.Context, db *sql.DB, fromStart bool) error {
	found, err := columns(ctx, db, t.messages)
	if err != nil {
		return t.explain(err)
	}
	isQueue, isLog := slices.Contains(found, "acked"), slices.Contains(found, "transaction_id")
	switch {
	case len(found) == 0:
		return fmt.Errorf("topic %s: there is no table %s: check -topic and -messages-table, and the database and search_path of -source",
			t.topic, t.messages)
	case isQueue && !isLog && !t.queue:
		return fmt.Errorf("topic %s: the table %s is a queue: pass -queue", t.topic, t.messages)
	case isLog && !isQueue && t.queue:
		return fmt.Errorf("topic %s: the table %s is no queue: leave out -queue", t.topic, t.messages)
	case t.queue || fromStart:
		return nil
	}
	return t.explain(t.checkGroup(ctx, db))
}

func (t table) checkGroup(ctx context.Context, db *sql.DB) error {
	found, err := columns(ctx, db, t.offsets)
	if err != nil {
		return err
	}
	var groups []string
	if len(found) > 0 {
		if groups, err = texts(ctx, db, `SELECT consumer_group FROM `+t.offsets+` ORDER BY 1`); err != nil {
			return err
		}
	}
	if slices.Contains(groups, t.group) {
		return nil
	}
	return fmt.Errorf("the consumer group %q has read nothing (groups that have: %q): check -consumer-group, or pass -from-start to move all",
		t.group, groups)
}

// leftLog compares as watermill-sql does, but also counts messages that wait for the end of older
// transactions.
const leftLog = `SELECT count(*) FROM %[1]s WHERE (transaction_id, "offset") > (
	coalesce((SELECT last_processed_transaction_id FROM %[2]s WHERE consumer_group = $1), '0'),
	coalesce((SELECT offset_acked FROM %[2]s WHERE consumer_group = $1), 0))`

const leftQueue = `SELECT count(*) FROM %s WHERE NOT acked`

// left counts the committed messages that are not yet moved.
func (t table) left(ctx context.Context, db *sql.DB) (count int, err error) {
	if t.queue {
		err = db.QueryRowContext(ctx, fmt.Sprintf(leftQueue, t.messages)).Scan(&count)
	} else {
		err = db.QueryRowContext(ctx, fmt.Sprintf(leftLog, t.messages, t.offsets), t.group).Scan(&count)
	}
	return count, t.explain(err)
}

func (t table) explain(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("topic %s: %w", t.topic, err)
}

// columns returns nothing if the table does not exist.
func columns(ctx context.Context, db *sql.DB, table string) ([]string, error) {
	return texts(ctx, db, `SELECT attname FROM pg_attribute WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped`, table)
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
