// Package watermillsql lets watermill-sql's own Publisher write to Outmill's outbox on
// PostgreSQL. A program that publishes with watermill-sql changes one line, the
// SchemaAdapter. Outmill then delivers its messages to the groups of subscribers, and to
// forwarders.
//
//	adapter, err := watermillsql.New(postgres.Config{})
//	…
//	tx, err := db.BeginTx(ctx, nil)
//	// … the business data, on tx …
//	pub, err := sql.NewPublisher(tx, sql.PublisherConfig{SchemaAdapter: adapter}, logger)
//	err = pub.Publish("orders", msg)
//	err = tx.Commit()
//
// As with package publisher, messages are committed with the transaction and reach each
// registered group once, and metadata and the setters have the same meaning: key,
// correlation, causation, tenant and trace; delays (that of Watermill's delay.WithContext too),
// expiry and dedup key. The differences:
//
//   - A message that is a step of a join, or waits for a join, is refused. Publish it with
//     package publisher.
//   - Duplicates are skipped without a report.
//   - Errors of PostgreSQL are the driver's, unchanged. A missing schema is SQLSTATE 3F000
//     or 42883: the store's Ensure creates it. AutoInitializeSchema has no effect.
//   - Topics may have only the characters that watermill-sql allows: letters, digits and -
//     $ : . _
//   - Readers are notified at most once in each postgres.Config.NotifyInterval (20 ms), and
//     no later notification follows: a message that is committed within the interval after
//     another one may wait until readers poll.
//
// The program's role needs EXECUTE on the function append, and no rights on tables:
//
//	GRANT USAGE ON SCHEMA outmill TO app;
//	GRANT EXECUTE ON FUNCTION outmill.append TO app;
//
// watermill-sql's Subscriber cannot read the outbox. Move readers to package subscriber
// first, and writers after them.
//
// # Version 4 of watermill-sql
//
// This package is for v3. In v4 the methods of a SchemaAdapter take structs, and all except
// SubscribeIsolationLevel return an error. So the adapter for v4 is a different type with
// the same content: InsertQuery(InsertQueryParams) returns what
// New(…).InsertQuery(params.Topic, params.Msgs) returns here, as v4's Query;
// SelectQuery(SelectQueryParams) and UnmarshalMessage(UnmarshalMessageParams) return
// ErrCannotRead; SchemaInitializingQueries(SchemaInitializingQueriesParams) returns
// nothing. v4's wrappers of *sql.Tx and pgx.Tx pass the statement and the arguments
// unchanged.
package watermillsql
