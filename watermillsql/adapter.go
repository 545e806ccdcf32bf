package watermillsql

import (
	"context"
	stdsql "database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/storekit"
)

// ErrCannotRead says that something was to be read by watermill-sql.
var ErrCannotRead = errors.New("outmill: watermill-sql's Subscriber cannot read Outmill's outbox: read it with package subscriber " +
	"(github.com/outmill/outmill/subscriber)")

// sqlCannotRead is ErrCannotRead where only a statement can say it.
const sqlCannotRead = `DO $outmill$ BEGIN RAISE EXCEPTION USING ERRCODE = 'feature_not_supported', MESSAGE = '%s'; END $outmill$`

// SchemaAdapter writes to the outbox for watermill-sql's Publisher. It may be used
// concurrently, by any number of Publishers.
type SchemaAdapter struct {
	maker    *storekit.RecordMaker
	appender *postgres.Appender
}

var _ sql.SchemaAdapter = (*SchemaAdapter)(nil)

// New makes an adapter for the outbox of that Config: Schema and TablePrefix must be
// those of the store that reads it; DedupWindow, MaxPayload and NotifyInterval count
// too. It does not connect. An error is an outmill.ErrInvalidConfig.
func New(config postgres.Config) (*SchemaAdapter, error) {
	appender, err := postgres.NewAppender(config)
	if err != nil {
		return nil, err
	}
	maker, err := storekit.NewRecordMaker()
	return &SchemaAdapter{maker, appender}, err
}

// InsertQuery returns the statement that appends the messages, all of them or none, in
// the transaction in which it is sent. What is wrong with one is an
// outmill.ErrInvalidRecord, and then there is no statement. The messages are not changed.
func (a *SchemaAdapter) InsertQuery(topic string, msgs message.Messages) (sql.Query, error) {
	made, err := a.maker.Of(context.Background(), topic, msgs)
	if err != nil {
		return sql.Query{}, err
	}
	query, args, err := a.appender.Statement(made...)
	return sql.Query{Query: query, Args: args}, err
}

// SelectQuery returns a statement that fails with ErrCannotRead.
func (a *SchemaAdapter) SelectQuery(string, string, sql.OffsetsAdapter) sql.Query {
	return sql.Query{Query: fmt.Sprintf(sqlCannotRead, quoted(ErrCannotRead.Error()))}
}

// UnmarshalMessage returns ErrCannotRead.
func (a *SchemaAdapter) UnmarshalMessage(sql.Scanner) (sql.Row, error) {
	return sql.Row{}, ErrCannotRead
}

// SchemaInitializingQueries returns nothing: the schema is made by the store's Ensure,
// and not for a topic. So AutoInitializeSchema does nothing.
func (a *SchemaAdapter) SchemaInitializingQueries(string) []sql.Query { return nil }

// SubscribeIsolationLevel is for reading, which fails.
func (a *SchemaAdapter) SubscribeIsolationLevel() stdsql.IsolationLevel {
	return stdsql.LevelDefault
}

// quoted is a text within a literal of SQL.
func quoted(text string) string { return strings.ReplaceAll(text, "'", "''") }
