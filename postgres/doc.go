// Package postgres is the outbox store on PostgreSQL 14 and later, by pgx: package engine, which has the rules and the methods, on
// tables of this package. It implements outmill.Store and all roles of package roles but Members.
//
//	store, err := postgres.Open(ctx, "postgres://localhost/orders", postgres.Config{}, logger)
//	err = store.Ensure(ctx)
//	err = pgx.BeginFunc(ctx, store.Pool(), func(tx pgx.Tx) error {
//		if _, err := tx.Exec(ctx, "INSERT INTO orders …"); err != nil {
//			return err
//		}
//		return pub.WithContext(store.WithTx(ctx, tx)).Publish("orders", msg)
//	})
//
// # Transactions
//
// WithTx takes a pgx.Tx, also a nested one, and any transaction of database/sql: a *sql.Tx, or
// a value that wraps one. The caller chooses the isolation level. The store serialises appends
// of several goroutines to one transaction; the caller must serialise its own statements.
//
// The store's own transactions that write are READ COMMITTED, and those that only read see one
// moment (REPEATABLE READ). The store repeats them after a deadlock or a serialization failure. In a
// caller's transaction such an error is returned wrapped: errors.As finds the *pgconn.PgError, and
// the caller runs the transaction again.
//
// # Durability
//
// Appends, Abandon, Fail, Release and Snooze are as durable as the server's settings make
// commits. Claims, acks and extensions do not wait for the disk: a crash of the server may lose
// those of its last moments, and records are then delivered again. With Config.DurableSettle
// they wait too.
//
// # Order
//
// A sequence gives each message a place, and the places order the messages of a key. PostgreSQL
// increments it as rows are inserted. If the application serialises the writers of a key (by a row
// lock, for example), this is the order of their commits. The sequence must keep its CACHE of 1;
// doctor reports another one (sequence_order).
//
// A claim by key, or in the order of the topic, waits some milliseconds for another claim of the
// same group and topic, by an advisory lock. A claim without an order leaves out a topic that
// another claim of the group has at that moment. No claim waits for a handler.
//
// If an ordered claim finds a record behind another one of its key, it holds the record: later
// claims skip it until its key changes, so the cost of a claim does not grow with the backlog
// of a blocked key.
//
// # The log
//
// A message that is due at once is written once, whatever the number of groups that read it, to a
// log that is only inserted into: a claim takes the next range of it, and writes one row for all; an
// ack of what was claimed writes one more. Segments of the log of which nothing is needed are
// truncated. Messages that are delayed, expire, are steps of joins, or have an ID that the caller
// gave are rows of the table records, one for each group, which are updated. A message of the log that is
// retried, dead, held, parked, edited, or kept after its ack moves to the records.
//
// The subscribers and forwarders look after the log, one process of all at a time. One of them at
// least must have the rights of a keeper, see Rights; without one the log grows.
//
// # Readers are woken
//
// An append notifies readers in all processes when it commits (LISTEN/NOTIFY). A store notifies
// at most once in Config.NotifyInterval, since PostgreSQL commits transactions that notify one
// after the other. Polling finds records without a notification. If a listening session, of any
// program, stays in a transaction and PostgreSQL's queue of notifications is half full, appends
// do not notify, because a full queue would fail their commits.
//
// # Connections
//
// New and NewFromDB use a pool of the user, and Open one of its own. Readers listen on one more
// connection. The store keeps nothing in a session, except on that one. Behind a
// proxy that pools transactions (PgBouncer, …) set the pool's DefaultQueryExecMode to
// pgx.QueryExecModeExec or pgx.QueryExecModeCacheDescribe, and set Config.ListenURL to a URL
// that bypasses the proxy. PostgreSQL then plans each statement again: claim in larger batches.
//
// No setting of a session changes what a call returns: times are numbers, and each transaction of
// the store has its own settings of the planner. In a caller's transaction they hold for the
// statements of the call, and the caller gets its own back. An append that takes one round trip, and the
// note of an inbox, need none.
//
// # Long transactions
//
// While any transaction of the database stays open, PostgreSQL cannot remove rows of the table
// records that were acked since, and claims have to skip them. The log keeps a segment with rows
// of an open transaction. So keep transactions short (idle_in_transaction_session_timeout), as for
// every queue on PostgreSQL.
//
// # Schema
//
// Ensure creates the tables. Call it explicitly (in a deploy job, or by outmill schema
// ensure), or at the start with Config.EnsureSchema. Or let your own migration tool run the
// statements from Statements, and those from StatementsFrom for an update. Each version of the
// schema is one transaction. Programs of an older version work with a newer schema unless its
// migration says otherwise (the column compatible of meta). So deploy the schema first, and
// then one instance after the other. Ensure takes CREATE on the database, or on the schema where that exists.
//
// The tables are the store's own: other programs append by the function append, and people look at
// the view readable. It shows what records and log have for each group, with its status, and the
// payload as text where it is valid UTF-8. It reads all that is there, so use Stats for repeated queries:
//
//	SELECT grp, topic, status, count(*) FROM outmill.readable GROUP BY 1, 2, 3;
//
// The stages of the view refine the four statuses. They and the names that LiteBus gives to the
// states of its outbox:
//
//	status     stages                          LiteBus
//	pending    ready, held, waiting, delayed   Pending; waiting for a retry: Failed
//	leased     leased                          Publishing
//	processed  processed                       Published
//	dead       dead                            DeadLettered
//
// # Rights
//
// The statements of the schema begin with the GRANT lines of each role, as comments: outmill schema
// print shows them. They are all that is needed, and tests run with exactly these rights. The roles
// are examples, and a program may have several:
//
//	publisher        publishes, also with dedup keys, and can read no message
//	namer            publishes messages with ids of its own, besides publishing
//	worker           subscribes or forwards, with the janitor, and operates (Requeue, Delete, Edit, Pause, DropGroup, …)
//	keeper           gives the log's space back, besides working, and makes a log that was restored from another server usable
//	reader           looks on (Stats, List, Get, Groups, …), and at the view readable
//	foreign_program  appends by the statements of a postgres.Appender, or by the function append, and needs EXECUTE of it only
//
// A worker whose handlers append, or that ends joins with a record, is a publisher, too.
//
// Registrations, dedup keys, joins, sagas and notes are entries of one table, so a publisher has rights
// to all of them. Where that is too much, let it append by the function.
//
// A call without a right fails with PostgreSQL's error, which names the table or function. outmill
// doctor names each right that a publisher or worker lacks, with the statement that grants it. To see
// the transactions of other users it needs pg_read_all_stats.
package postgres
