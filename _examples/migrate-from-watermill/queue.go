package main

import (
	"database/sql"
	"errors"
	"fmt"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
)

// queueTable is a table of PostgreSQLQueueSchema, which came with version 4 of
// watermill-sql, for the subscriber of version 3.
type queueTable struct {
	messages string
	batch    int
}

var errReadOnly = errors.New("the tool writes no messages into old tables")

type queueSchema struct{ queueTable }

// SelectQuery locks the rows as watermill-sql does, so that two readers never
// have the same one.
func (q queueSchema) SelectQuery(string, string, wsql.OffsetsAdapter) wsql.Query {
	return wsql.Query{Query: fmt.Sprintf(
		`SELECT "offset", uuid, payload, metadata FROM %s WHERE NOT acked ORDER BY "offset" LIMIT %d FOR UPDATE`, q.messages, q.batch)}
}

func (queueSchema) UnmarshalMessage(row wsql.Scanner) (wsql.Row, error) {
	var r wsql.Row
	if err := row.Scan(&r.Offset, &r.UUID, &r.Payload, &r.Metadata); err != nil {
		return wsql.Row{}, fmt.Errorf("read a row of watermill-sql: %w", err)
	}
	r.Msg = messageOf(r)
	return r, nil
}

// SubscribeIsolationLevel returns the level on which AckMessageQuery relies.
func (queueSchema) SubscribeIsolationLevel() sql.IsolationLevel { return sql.LevelRepeatableRead }

func (queueSchema) InsertQuery(string, message.Messages) (wsql.Query, error) {
	return wsql.Query{}, errReadOnly
}

func (queueSchema) SchemaInitializingQueries(string) []wsql.Query { return nil }

type queueOffsets struct{ queueTable }

// AckMessageQuery marks all rows up to the last one. The snapshot of the transaction has not
// changed since the select. So these are the rows of the batch, without rows that were committed
// since then with a lower offset. The rows are marked even if the old reader deleted them, because
// the tool deletes nothing.
func (q queueOffsets) AckMessageQuery(_ string, last wsql.Row, _ string) wsql.Query {
	return wsql.Query{
		Query: fmt.Sprintf(`UPDATE %s SET acked = true WHERE NOT acked AND "offset" <= $1`, q.messages),
		Args:  []any{last.Offset},
	}
}

func (queueOffsets) ConsumedMessageQuery(string, wsql.Row, string, []byte) wsql.Query {
	return wsql.Query{}
}
func (queueOffsets) NextOffsetQuery(string, string) wsql.Query            { return wsql.Query{} }
func (queueOffsets) SchemaInitializingQueries(string) []wsql.Query        { return nil }
func (queueOffsets) BeforeSubscribingQueries(string, string) []wsql.Query { return nil }
