// Package sqlserver is the store on SQL Server 2019 and later, and Azure SQL, by
// the driver github.com/microsoft/go-mssqldb.
//
//	store, err := sqlserver.Open(ctx, "sqlserver://user:password@host:1433?database=orders", sqlserver.Config{}, logger)
//	err = store.Ensure(ctx)
//	tx, err := store.DB().BeginTx(ctx, nil)
//	_, err = tx.ExecContext(ctx, "INSERT INTO orders …")
//	err = pub.WithContext(store.WithTx(ctx, tx)).Publish("orders", msg)
//	err = tx.Commit()
//
// New takes a pool that the program has: a *sql.DB of the driver's "sqlserver".
// The database's compatibility level is 130 or higher.
//
// # Transactions
//
// WithTx takes a *sql.Tx or what wraps one; InTx begins and ends one; with
// Config.TxFromContext the store finds what somebody else has put in the context,
// such as watermill-sql: Adopt(sql.TxFromContext). Appends of several goroutines
// to one transaction are serialised; what else the caller does with it is not.
// Append is one call of a procedure, however many records it gets.
//
// The isolation level is the caller's. Append runs under READ COMMITTED, and the
// caller's level holds again when it returns. It also runs under XACT_ABORT: an
// error of SQL Server's (a deadlock, say) ends the whole transaction, and the
// caller runs it again. errors.As finds the driver's mssql.Error. What Append
// refuses itself leaves the transaction as it is. The store's own transactions
// are READ COMMITTED, and are repeated after a deadlock, after a lock that was
// not had in time, and after what Azure SQL says while it moves or limits a
// database. READ_COMMITTED_SNAPSHOT may be on or off: what reads to decide takes
// locks either way. Off, List, Stats, ListJoins and ListSteps pass over what
// another transaction has locked just then, and Get waits a quarter of a second
// for it; on, which Azure SQL has by default, they see it as it was.
//
// An append with dedup keys waits for the open transaction of another that has
// the same topic and key, and for no other: it takes an application lock of each
// key (sp_getapplock) until the transaction ends. Two transactions that append
// the same keys in different orders may be deadlocked; one then gets an error.
//
// AckInTx, PutNote and the calls of sagas take part in the caller's transaction in the same
// way: under READ COMMITTED, whatever its level. They lock what they write until it ends,
// and nothing that claims, reapers or other handlers wait for. A note and the start of a
// saga take an application lock of their name. docs/sqlserver.md tells how.
//
// # Tables
//
// They are dbo.Outbox, OutboxJoin, OutboxJoinMember and some more whose names
// begin so; Config.Schema and Config.Table change the names. Outbox has the
// columns of the functional specification (Status: 0 ready, 1 in progress,
// 2 done, 3 failed; LockedUntil, OwnerToken, RetryCount, NextAttemptAt, …) and
// those that groups, keys, expiry and joins need. It has a row for each message
// and group. Times are UTC, with microseconds, and the payload is VARBINARY, byte
// for byte what was published. The view OutboxReadable shows the records with
// words, and payloads as text:
//
//	SELECT TOP (20) * FROM dbo.OutboxReadable WHERE StatusText = 'dead'
//
// Topics, keys and ids are compared by their code points, whatever the
// database's collation.
//
// Ensure makes the tables, types and procedures, or brings them up to date; so
// does outmill schema -ensure. outmill schema without it, and Statements, give
// the batches to a migration tool; between two of them sqlcmd wants a line GO.
// Each version of the schema is one transaction. A tool that runs all batches in
// one must commit it before the procedures are called.
//
// # Claims
//
// A claim without an order locks the rows that it leases, and passes over those
// that others have locked (UPDLOCK, READPAST, ROWLOCK), so that claims do not
// wait for each other. A claim in order has an application lock of the line, the
// records of a group and a topic (sp_getapplock), for its transaction, and others
// wait for it, up to 30 s. From 5,000 locks of a statement on SQL Server may lock
// the whole table in their place: so statements change 900 records at most, except
// those that requeue whole keys, and the tables are made with
// LOCK_ESCALATION = DISABLE. What a call gets beyond 900, it does in several
// statements; a claim in order ends there. Of records that become due at once a
// claim in order admits a step, and the next claim goes on.
//
// Indexes are made with ALLOW_PAGE_LOCKS = OFF, so maintenance plans must use
// ALTER INDEX … REBUILD: SQL Server refuses REORGANIZE.
//
// # Order
//
// Records of a key are ordered by the IDENTITY column Seq: among writers that
// the application serialises (by a row lock, say), that is the order of their
// commits.
//
// # Time
//
// Due times, leases and expiry go by the server's clock (SYSUTCDATETIME), never
// by a client's.
//
// # Readers poll
//
// SQL Server has no LISTEN. An Append or InTx wakes the readers of the same store
// in the same process; what other processes commit, and what a caller's own
// transaction commits, is found when they look next: see PollInterval of
// subscriber.Config and forwarder.Config.
//
// # Rights
//
// A program that does not make the schema needs SELECT, INSERT, UPDATE and DELETE
// on the tables, and EXECUTE on the procedures and the table types. Grants
// returns the statements for a role; the file grants.sql has them with the default
// names. sp_getapplock and sp_releaseapplock, which the procedures call, are everybody's.
//
// Ensure takes more: see Grants.
//
// # TLS and Microsoft Entra ID
//
// The settings of the connection are the driver's: encrypt,
// TrustServerCertificate, certificate, hostNameInCertificate, tlsmin. For
// Microsoft Entra ID (Azure AD) import the driver's package azuread, which this
// one does not, and give New the pool:
//
//	db, err := sql.Open(azuread.DriverName,
//
// "sqlserver://host.database.windows.net?database=orders&encrypt=true&fedauth=ActiveDirectoryDefault")
//
//	store, err := sqlserver.New(db, sqlserver.Config{}, logger)
//
// # Tested on
//
// No SQL Server, and no Azure SQL, has run the project's tests yet. Microsoft's parser,
// binder and model have read all of the T-SQL, and Babelfish for PostgreSQL, which
// speaks SQL Server's protocol and language, has run much of it. The tests run on the
// server that OUTMILL_TEST_SQLSERVER_URL names. docs/sqlserver.md lists what
// only an engine can show.
// Babelfish takes no notice of hints of locks, so that there a claim waits for
// another one in the place of passing over its rows; the store asks the server
// whether it is Babelfish, and locks by other means where it must. Table-valued
// parameters, plans and speed differ too. Where the difference shows, the test
// says so.
package sqlserver
