// Package driver keeps what package engine needs in a SQL Server database: rows, notes and entries in tables. See engine/driver for what
// that is.
//
// It has never run on a SQL Server, because none is at hand: Microsoft's parser, binder and model check every statement (.ci/sql),
// and what needs a server is tested where OUTMILL_TEST_SQLSERVER_URL names one. docs/sqlserver.md says what that leaves open.
//
// The database needs READ_COMMITTED_SNAPSHOT: then a statement sees one moment, and a page is one statement. Each statement stands in a
// file of the directory statements, with a comment.
//
// Of the optional interfaces it leaves out Taker and AppendWithin, which save round trips by statements with more rules in them than can be
// trusted without a server; Ender, because a *sql.Tx must send its COMMIT itself; Rester, because stores rarely share a database; Hearer,
// Teller and Witness, because SQL Server has no LISTEN; and those of drivers with a log.
//
// Read driver.go and tx.go first, and then page.go and apply.go.
package driver
