// Package postgres is the outbox store on PostgreSQL 14 and later, by pgx. It
// implements outmill.Store and roles.Waker.
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
// of several goroutines to one pgx.Tx; the caller must serialise its own statements. Append
// sends one statement in one round trip. From 50 records on it uses COPY, if no record has a
// dedup key.
//
// The store's own transactions are explicitly READ COMMITTED. The store repeats them after a
// deadlock or a serialization failure. In a caller's transaction such an error is returned
// wrapped: errors.As finds the *pgconn.PgError, and the caller runs the transaction again.
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
// An identity column orders the records of a key. PostgreSQL increments it as rows are
// inserted. If the application serialises the writers of a key (by a row lock, for example),
// this is the order of their commits. The sequence must keep its CACHE of 1. Ordered claims
// take one topic at a time, serialised by an advisory lock. Unordered claims never wait for
// each other if records are in rows (SKIP LOCKED). On the log a claim waits some milliseconds
// for another claim of the same group and topic. No claim waits for a handler.
//
// If an ordered claim finds a record behind another one of its key, it holds the record: later
// claims skip it until its key changes, so the cost of a claim does not grow with the backlog
// of a blocked key.
//
// # The log
//
// Records that are due at once go to a log that is only inserted into: claims read ranges of
// it, acks set bits, and finished parts are truncated. Records that are delayed, retried, dead
// or held are rows of a table that are updated. A schema that was created before the log
// existed has no log until a program sets Config.Lane: LaneLog. docs/postgres-log.md explains
// the log.
//
// # Readers are woken
//
// An append notifies readers in all processes when it commits (LISTEN/NOTIFY). A store notifies
// at most once in Config.NotifyInterval, since PostgreSQL commits transactions that notify one
// after the other. Polling finds records without a notification. If a listening session, of any
// program, stays in a transaction and PostgreSQL's queue of notifications is half full, appends
// do not notify, because a full queue would fail their commits.
//
// # Behind a proxy
//
// The store keeps nothing in a session, except on the one connection that listens. Behind a
// proxy that pools transactions (PgBouncer, …) set the pool's DefaultQueryExecMode to
// pgx.QueryExecModeExec or pgx.QueryExecModeCacheDescribe, and set Config.ListenURL to a URL
// that bypasses the proxy. PostgreSQL then plans each statement again, which costs a claim some
// milliseconds: claim in larger batches.
//
// # Long transactions
//
// While any transaction of the database stays open, PostgreSQL cannot remove the records that
// were acked since, and claims have to skip them: after a million acks behind such a
// transaction a claim takes half a second. So keep transactions short
// (idle_in_transaction_session_timeout), as for every queue on PostgreSQL.
//
// # Schema
//
// Ensure creates the tables. Call it explicitly (in a deploy job, or by outmill schema
// ensure), or at the start with Config.EnsureSchema. Or let your own migration tool run the
// statements from Statements, and those from StatementsFrom for an update. Each version of the
// schema is one transaction. Programs of an older version work with a newer schema unless its
// migration says otherwise (the column compatible of meta). So deploy the schema first, and
// then one instance after the other.
//
// The view readable is for people with psql. It shows the records of both lanes with their
// status and their payload as text (its first 1,000,000 bytes), and agrees with Stats and List.
// It reads all records, so use Stats, which does not, for repeated queries:
//
//	SELECT grp, topic, status, count(*) FROM outmill.readable GROUP BY 1, 2, 3;
//
// Stages refine the four statuses within the store. They and the names that LiteBus gives to
// the states of its outbox:
//
//	status     stages                                    LiteBus
//	pending    in line, held, aside (paused), waiting,   Pending; waiting for a retry: Failed
//	           delayed, expired
//	leased     leased                                    Publishing
//	processed  processed                                 Published
//	dead       dead                                      DeadLettered
//
// # Rights
//
// These are all that are needed, for a schema named outmill; those marked log only
// where the log is on:
//
//	-- everybody
//	GRANT USAGE ON SCHEMA outmill TO app;
//	-- who publishes
//	GRANT SELECT ON outmill.meta, outmill.groups TO app;
//	GRANT INSERT ON outmill.records TO app;
//	GRANT SELECT, INSERT, UPDATE ON outmill.dedup TO app;
//	GRANT INSERT ON outmill.log TO app;                                     -- log
//	GRANT USAGE ON SEQUENCE outmill.records_seq_seq TO app;                 -- log
//	-- who publishes records with ids of its own that it made more than a minute ago
//	GRANT SELECT ON outmill.log, outmill.batches, outmill.ended, outmill.late TO app; -- log
//	-- who publishes only by the statements of a postgres.Appender, which append without a store; Ensure takes this right from PUBLIC
//	GRANT EXECUTE ON FUNCTION outmill.append TO app;
//	-- who starts joins or publishes their steps, besides publishing
//	GRANT SELECT (id) ON outmill.records TO app;
//	GRANT SELECT (id) ON outmill.log TO app;                                -- log
//	GRANT SELECT, INSERT ON outmill.joins, outmill.join_members TO app;
//	-- who subscribes or forwards (the janitor too)
//	GRANT SELECT, UPDATE ON outmill.meta TO app;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON outmill.groups, outmill.workers, outmill.endings TO app;
//	GRANT SELECT, UPDATE, DELETE ON outmill.records, outmill.dedup TO app;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON outmill.inbox TO app;
//	GRANT SELECT, DELETE ON outmill.sagas, outmill.audit TO app;
//	GRANT SELECT, INSERT, UPDATE, DELETE ON outmill.lanes TO app;
//	GRANT SELECT ON outmill.pauses TO app;
//	GRANT SELECT, UPDATE, DELETE ON outmill.joins, outmill.join_members TO app;
//	GRANT INSERT ON outmill.records TO app;                                 -- log
//	GRANT SELECT, DELETE ON outmill.log TO app;                             -- log
//	GRANT SELECT, INSERT, UPDATE ON outmill.batches TO app;                 -- log
//	GRANT SELECT, INSERT, UPDATE, DELETE ON outmill.late TO app;            -- log
//	GRANT SELECT, INSERT ON outmill.ended TO app;                           -- log
//	GRANT SELECT ON SEQUENCE outmill.records_seq_seq TO app;                -- log
//	-- one of those at least, which then gives the log's space back
//	GRANT SELECT, TRUNCATE ON outmill.log_0, outmill.log_1, outmill.log_2 TO app; -- log
//	GRANT DELETE, TRUNCATE ON outmill.batches, outmill.ended TO app;        -- log
//	GRANT SELECT, UPDATE ON outmill.upkeep TO app;                          -- log: only to roles that may also TRUNCATE as above
//	GRANT SELECT, INSERT, UPDATE, DELETE ON outmill.retired TO app;         -- log
//	-- who ends joins (joins.AddHandlers) or attaches steps, besides subscribing
//	GRANT INSERT ON outmill.records, outmill.dedup, outmill.join_members TO app;
//	GRANT INSERT ON outmill.log TO app;                                     -- log
//	GRANT USAGE ON SEQUENCE outmill.records_seq_seq TO app;                 -- log
//	-- who handles sagas, besides publishing and subscribing
//	GRANT INSERT, UPDATE ON outmill.sagas TO app;
//	-- who looks on (Stats, List, Get, Groups, GetJoin, ListJoins, ListSteps, DedupKey, DeadLetters, Audited)
//	GRANT SELECT ON outmill.meta, outmill.groups, outmill.workers, outmill.endings, outmill.records, outmill.lanes, outmill.pauses,
//	    outmill.dedup TO app;
//	GRANT SELECT ON outmill.joins, outmill.join_members, outmill.audit TO app;
//	GRANT SELECT ON outmill.log, outmill.batches, outmill.ended, outmill.late TO app; -- log
//	-- who runs outmill doctor, to see the transactions of other users
//	GRANT pg_read_all_stats TO app;
//	-- who looks at the view for people, and nothing else
//	GRANT SELECT ON outmill.readable TO app;
//	-- who operates (Requeue, Delete, Edit, Skip, DropGroup, Pause, Resume, SealJoin, CancelJoin, ReportFailed, …), besides looking on
//	GRANT UPDATE ON outmill.meta TO app;
//	GRANT DELETE ON outmill.groups, outmill.workers TO app;
//	GRANT INSERT, UPDATE, DELETE ON outmill.endings TO app;
//	GRANT UPDATE, DELETE ON outmill.records, outmill.lanes TO app;
//	GRANT INSERT, UPDATE, DELETE ON outmill.pauses TO app;
//	GRANT UPDATE ON outmill.joins, outmill.join_members TO app;
//	GRANT INSERT, UPDATE ON outmill.audit TO app;
//	GRANT INSERT ON outmill.records TO app;                                 -- log
//	GRANT DELETE ON outmill.log, outmill.late TO app;                       -- log
//	GRANT INSERT, UPDATE ON outmill.batches TO app;                         -- log
//	GRANT INSERT ON outmill.ended TO app;                                   -- log
//	GRANT SELECT ON SEQUENCE outmill.records_seq_seq TO app;                -- log
//	-- everybody's, unless it was revoked
//	GRANT EXECUTE ON FUNCTION outmill.due, outmill.resumed, outmill.count_steps, outmill.put_note, outmill.may_come,
//	    outmill.demand, outmill.may_have_rows, outmill.kinds TO app;
//	GRANT EXECUTE ON FUNCTION outmill.log_due, outmill.log_due_from, outmill.log_ready_at, outmill.log_late, outmill.log_unfinished,
//	    outmill.log_passed, outmill.log_moved, outmill.log_stale, outmill.log_newest, outmill.log_in_work,
//	    outmill.log_first_line, outmill.log_tidy, outmill.log_needed, outmill.log_maybe_late, outmill.log_late_counts,
//	    outmill.log_open_lanes, outmill.log_stop_writing, outmill.log_truncate TO app;                                         -- log
//
// Ensure takes CREATE on the database, or on the schema where that exists.
package postgres
