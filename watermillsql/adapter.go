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

// ErrCannotRead says that watermill-sql's Subscriber cannot read the outbox.
var ErrCannotRead = errors.New("outmill: watermill-sql's Subscriber cannot read Outmill's outbox: read it with package subscriber " +
	"(github.com/outmill/outmill/subscriber)")

// sqlCannotRead is a statement that fails with ErrCannotRead, for methods that return a
// statement and no error.
const sqlCannotRead = `DO $outmill$ BEGIN RAISE EXCEPTION USING ERRCODE = 'feature_not_supported', MESSAGE = '%s'; END $outmill$`

// SchemaAdapter writes to the outbox for watermill-sql's Publisher. It is safe for
// concurrent use by any number of Publishers.
type SchemaAdapter struct {
	maker    *storekit.RecordMaker
	appender *postgres.Appender
}

var _ sql.SchemaAdapter = (*SchemaAdapter)(nil)

// New makes an adapter for the outbox of this Config. Schema and TablePrefix must be those
// of the store that reads it; DedupWindow, MaxPayload and NotifyInterval apply too. It does
// not connect. An error is an outmill.ErrInvalidConfig.
func New(config postgres.Config) (*SchemaAdapter, error) {
	appender, err := postgres.NewAppender(config)
	if err != nil {
		return nil, err
	}
	maker, err := storekit.NewRecordMaker(false)
	return &SchemaAdapter{maker, appender}, err
}

// InsertQuery returns the statement that appends the messages, all of them or none, in the
// transaction that executes it. If a message is invalid, it returns
// outmill.ErrInvalidRecord and no statement. It does not change the messages.
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

// SchemaInitializingQueries returns no queries, so AutoInitializeSchema has no effect. The
// store's Ensure creates the schema, once for all topics.
func (a *SchemaAdapter) SchemaInitializingQueries(string) []sql.Query { return nil }

// SubscribeIsolationLevel returns the default. Only watermill-sql's Subscriber uses it, and
// that fails.
func (a *SchemaAdapter) SubscribeIsolationLevel() stdsql.IsolationLevel {
	return stdsql.LevelDefault
}

// quoted escapes a text for an SQL literal.
func quoted(text string) string { return strings.ReplaceAll(text, "'", "''") }
