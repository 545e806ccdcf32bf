// Package sqlserver is the store on SQL Server 2019 and later, and on Azure SQL, with the driver
// github.com/microsoft/go-mssqldb: package engine, which has the rules and the methods, on tables of this
// package. It implements outmill.Store and all roles of package roles but Members.
//
//	store, err := sqlserver.Open(ctx, "sqlserver://user:password@host:1433?database=orders", sqlserver.Config{}, logger)
//	err = store.Ensure(ctx)
//	tx, err := store.DB().BeginTx(ctx, nil)
//	_, err = tx.ExecContext(ctx, "INSERT INTO orders …")
//	err = pub.WithContext(store.WithTx(ctx, tx)).Publish("orders", msg)
//	err = tx.Commit()
//
// New takes a pool that the program already has: a *sql.DB of the driver "sqlserver".
//
// # The database
//
// The database must have READ_COMMITTED_SNAPSHOT on, as Azure SQL has by default, and compatibility level
// 130 or higher. Otherwise Ensure, and the first call, return an outmill.ErrInvalidConfig that names the
// statement to run. The store does not change a setting of the database.
//
// # Transactions
//
// WithTx takes a *sql.Tx or a wrapper of one; InTx begins and ends one. With Config.TxFromContext
// the store finds a transaction that another library has put into the context, such as
// watermill-sql: Adopt(sql.TxFromContext). If several goroutines append to one transaction, the
// store serialises their appends, but not the caller's other statements.
//
// The isolation level is the caller's: each statement of the store runs under READ COMMITTED, and the
// caller's level applies again when it returns. A call that fails goes back to a savepoint, and the
// transaction goes on without it, unless SQL Server has rolled it back. errors.As finds the driver's
// mssql.Error. Savepoints are not possible in distributed transactions.
//
// The store's own transactions are READ COMMITTED under XACT_ABORT. They are repeated after a deadlock,
// after a lock timeout, and after the errors by which Azure SQL says that it moves or limits a database.
//
// An append with dedup keys, a note of the inbox and the start of a saga or a join wait for another open
// transaction that has written the same key, and for no other. Two transactions that write the same keys
// in different orders may deadlock; one of them then gets an error.
//
// # Tables
//
// The tables are dbo.Outbox, with a row for each message and group, OutboxNote, OutboxEntry and
// OutboxMeta; Config.Schema and Config.Table change the names. The tables are the store's own. Programs
// in other languages claim and settle by the procedures Outbox_Claim, Outbox_Ack, Outbox_Abandon,
// Outbox_Fail and Outbox_Reap. The views OutboxReadable, OutboxJoin and OutboxJoinMember are for people:
//
//	SELECT TOP (20) * FROM dbo.OutboxReadable WHERE status = 'dead'
//
// Times in the tables are microseconds since 1970, of the server's clock. Topics, keys and ids are
// compared by their code points, whatever the database's collation.
//
// Ensure creates the tables, types, functions and procedures, or brings them up to date; so does outmill
// schema ensure. outmill schema print, and Statements, give the batches to a migration tool; sqlcmd needs
// a line GO between two batches. Each version of the schema is one transaction.
//
// # Claims
//
// A claim without an order locks the rows that it leases, and skips rows that others have locked
// (UPDLOCK, READPAST, ROWLOCK), so that claims do not wait for each other. A claim in order locks the
// group's records of the topic for its transaction (sp_getapplock); another claim in order waits for it,
// up to 10 s, or claims from other topics.
//
// Indexes are made with ALLOW_PAGE_LOCKS = OFF, so maintenance plans must use ALTER INDEX … REBUILD:
// SQL Server refuses REORGANIZE. The tables are made with LOCK_ESCALATION = DISABLE.
//
// # Order
//
// The IDENTITY column seq orders the records of a key. If the application serialises the writers
// (by a row lock, say), that is the order of their commits.
//
// # Readers poll
//
// SQL Server has no LISTEN. An Append, InTx or Transact wakes the readers of the same store in the same
// process. Polling finds the commits of other processes and of a caller's own transaction: see
// PollInterval of subscriber.Config and forwarder.Config.
//
// # Rights
//
// A program that does not create the schema needs rights on the tables, functions and one table type.
// Grants returns the statements for a role. Every login may execute sp_getapplock.
//
// # TLS and Microsoft Entra ID
//
// The settings of the connection are the driver's: encrypt, TrustServerCertificate, certificate,
// hostNameInCertificate, tlsmin. For Microsoft Entra ID (Azure AD), import the driver's package
// azuread, which this package does not import, and pass the pool to New:
//
//	const dsn = "sqlserver://host.database.windows.net?database=orders&encrypt=true&fedauth=ActiveDirectoryDefault"
//	db, err := sql.Open(azuread.DriverName, dsn)
//	store, err := sqlserver.New(db, sqlserver.Config{}, logger)
//
// # Tested on
//
// No SQL Server, and no Azure SQL, has run this store yet. Microsoft's parser, binder and model check each
// statement and the schema, and the tests compare what the program sends and reads. The tests run on the
// server that OUTMILL_TEST_SQLSERVER_URL names. docs/sqlserver.md lists what only a server can show.
package sqlserver
