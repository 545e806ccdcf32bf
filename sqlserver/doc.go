// Package sqlserver is the store on SQL Server 2019 and later, and on Azure SQL, with the driver
// github.com/microsoft/go-mssqldb.
//
//	store, err := sqlserver.Open(ctx, "sqlserver://user:password@host:1433?database=orders", sqlserver.Config{}, logger)
//	err = store.Ensure(ctx)
//	tx, err := store.DB().BeginTx(ctx, nil)
//	_, err = tx.ExecContext(ctx, "INSERT INTO orders …")
//	err = pub.WithContext(store.WithTx(ctx, tx)).Publish("orders", msg)
//	err = tx.Commit()
//
// New takes a pool that the program already has: a *sql.DB of the driver "sqlserver". The
// database must have compatibility level 130 or higher.
//
// # Transactions
//
// WithTx takes a *sql.Tx or a wrapper of one; InTx begins and ends one. With Config.TxFromContext
// the store finds a transaction that another library has put into the context, such as
// watermill-sql: Adopt(sql.TxFromContext). If several goroutines append to one transaction, the
// store serialises their appends, but not the caller's other statements. Append is one call of a
// procedure, for any number of records.
//
// The isolation level is the caller's. Append runs under READ COMMITTED, and the caller's level
// applies again when it returns. Append also runs under XACT_ABORT: an error of SQL Server (a
// deadlock, say) rolls the whole transaction back, and the caller runs it again. errors.As finds
// the driver's mssql.Error. A record that Append itself refuses leaves the transaction as it is.
//
// The store's own transactions are READ COMMITTED. They are repeated after a deadlock, after a
// lock timeout, and after the errors by which Azure SQL says that it moves or limits a database.
//
// READ_COMMITTED_SNAPSHOT may be on or off. Reads on which the store bases a decision take locks
// in both cases. If it is off, List, Stats, ListJoins and ListSteps skip rows that another
// transaction has locked, and Get waits a quarter of a second for such a row. If it is on, as by
// default in Azure SQL, they read the last committed version.
//
// An append with dedup keys takes an application lock of each key (sp_getapplock) until the
// transaction ends. So it waits for another open transaction only if that one has the same topic
// and key. Two transactions that append the same keys in different orders may deadlock; one of
// them then gets an error.
//
// PutNote and the calls of sagas take part in the caller's transaction in the same way:
// under READ COMMITTED, whatever its level. They lock the rows that they write until the
// transaction ends, but no row for which claims, reapers or other handlers wait. A note and the
// start of a saga take an application lock of their name. docs/sqlserver.md explains these locks.
//
// # Tables
//
// The tables are dbo.Outbox, OutboxJoin, OutboxJoinMember and others with the same prefix;
// Config.Schema and Config.Table change the names. Outbox has the columns of the functional
// specification (Status: 0 ready, 1 in progress, 2 done, 3 failed; LockedUntil, OwnerToken,
// RetryCount, NextAttemptAt, …) and the columns that groups, keys, expiry and joins need. It has
// a row for each message and group. Times are UTC, with microseconds. The payload is VARBINARY,
// and has the published bytes. The view OutboxReadable shows statuses in words, and payloads as
// text:
//
//	SELECT TOP (20) * FROM dbo.OutboxReadable WHERE StatusText = 'dead'
//
// Topics, keys and ids are compared by their code points, whatever the
// database's collation.
//
// Ensure creates the tables, types and procedures, or brings them up to date; so does outmill
// schema ensure. outmill schema print, and Statements, give the batches to a
// migration tool; sqlcmd needs a line GO between two batches. Each version of the schema is one
// transaction. A tool that runs all batches in one transaction must commit it before the
// procedures are called.
//
// # Claims
//
// A claim without an order locks the rows that it leases, and skips rows that others have locked
// (UPDLOCK, READPAST, ROWLOCK), so that claims do not wait for each other. A claim in order has,
// for its transaction, an application lock (sp_getapplock) of the records of a topic and a group,
// which the code calls a line. Other claims in order wait for this lock, up to 30 s.
//
// When a statement has 5,000 locks, SQL Server may replace them by a lock of the whole table. So
// statements change at most 900 records, except those that requeue whole keys, and the tables are
// made with LOCK_ESCALATION = DISABLE. A call with more than 900 records uses several statements;
// a claim in order stops at 900. If many records become due at once, a claim in order makes a
// bounded number of them ready, and the next claim continues.
//
// Indexes are made with ALLOW_PAGE_LOCKS = OFF, so maintenance plans must use
// ALTER INDEX … REBUILD: SQL Server refuses REORGANIZE.
//
// # Order
//
// The IDENTITY column Seq orders the records of a key. If the application serialises the writers
// (by a row lock, say), that is the order of their commits.
//
// # Time
//
// Due times, leases and expiry use the server's clock (SYSUTCDATETIME), never a client's.
//
// # Readers poll
//
// SQL Server has no LISTEN. An Append or InTx wakes the readers of the same store in the same
// process. Polling finds the commits of other processes and of a caller's own transaction: see
// PollInterval of subscriber.Config and forwarder.Config.
//
// # Rights
//
// A program that does not create the schema needs SELECT, INSERT, UPDATE and DELETE on the
// tables, and EXECUTE on the procedures and the table types. Grants returns the statements for a
// role; the file grants.sql has them with the default names. Every login may execute
// sp_getapplock and sp_releaseapplock, which the procedures call.
//
// Ensure needs more rights: see Grants.
//
// # TLS and Microsoft Entra ID
//
// The settings of the connection are the driver's: encrypt, TrustServerCertificate, certificate,
// hostNameInCertificate, tlsmin. For Microsoft Entra ID (Azure AD), import the driver's package
// azuread, which this package does not import, and pass the pool to New:
//
//	db, err := sql.Open(azuread.DriverName,
//
// "sqlserver://host.database.windows.net?database=orders&encrypt=true&fedauth=ActiveDirectoryDefault")
//
//	store, err := sqlserver.New(db, sqlserver.Config{}, logger)
//
// # Tested on
//
// No SQL Server, and no Azure SQL, has run the project's tests yet. Microsoft's parser, binder
// and model have read all of the T-SQL. Babelfish for PostgreSQL, which speaks SQL Server's
// protocol and language, has run much of it. The tests run on the server that
// OUTMILL_TEST_SQLSERVER_URL names. docs/sqlserver.md lists what only SQL Server's own engine can
// show.
//
// Babelfish ignores lock hints, so a claim there waits for another claim instead of skipping its
// rows. The store asks the server whether it is Babelfish, and then uses other locks if it must.
// Table-valued parameters, plans and speed differ too. A test says so if the difference shows.
package sqlserver
