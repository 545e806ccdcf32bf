// Package watermillsql lets watermill-sql's own Publisher write to Outmill's outbox on
// PostgreSQL. A program that publishes with watermill-sql changes one line, the
// SchemaAdapter, and its messages are then delivered by Outmill: to the groups of
// subscribers, and to forwarders.
//
//	adapter, err := watermillsql.New(postgres.Config{})
//	…
//	tx, err := db.BeginTx(ctx, nil)
//	// … the business data, on tx …
//	pub, err := sql.NewPublisher(tx, sql.PublisherConfig{SchemaAdapter: adapter}, logger)
//	err = pub.Publish("orders", msg)
//	err = tx.Commit()
//
// Messages are committed with the transaction and reach each registered group once, as
// those of package publisher do, and metadata mean the same: keys, delays (Watermill's
// too), expiry, dedup keys, correlation, causation, tenant and trace. What differs:
//
//   - A message that is a step of a join, or waits for one, is refused. Publish it with
//     package publisher.
//   - Nothing says which messages were duplicates; they are left out.
//   - Errors of PostgreSQL come as the driver has them. A missing schema is
//     SQLSTATE 3F000 or 42883: the store's Ensure makes it. AutoInitializeSchema does
//     nothing.
//   - Topics are restricted to what watermill-sql allows: letters, digits and - $ : . _
//   - Readers are notified as postgres.Config.NotifyInterval says, but nothing is made up
//     for: a message that is committed within it (20 ms) of another one may wait until
//     readers poll.
//
// The role of the program needs EXECUTE on the function append, and no rights on tables:
//
//	GRANT USAGE ON SCHEMA outmill TO app;
//	GRANT EXECUTE ON FUNCTION outmill.append TO app;
//
// watermill-sql's Subscriber cannot read the outbox. Move readers to package subscriber
// first, and writers after them.
//
// # Version 4 of watermill-sql
//
// This package is for v3. In v4 the methods of a SchemaAdapter take structs, and all but
// SubscribeIsolationLevel return an error, so the adapter is another type with the same
// content: InsertQuery(InsertQueryParams) returns what New(…).InsertQuery(params.Topic,
// params.Msgs) returns here, as v4's Query; SelectQuery(SelectQueryParams) and
// UnmarshalMessage(UnmarshalMessageParams) return ErrCannotRead;
// SchemaInitializingQueries(SchemaInitializingQueriesParams) returns nothing. v4's
// wrappers of *sql.Tx and pgx.Tx pass statement and arguments on as they are.
package watermillsql
