// Package next is the driver of package engine for SQL Server: rows, notes and entries in tables. Package sqlserver does not use it
// yet.
//
// It has never run on a SQL Server, because none is at hand: Microsoft's parser, binder and model check every statement (.ci/sql),
// and its tests skip without OUTMILL_TEST_SQLSERVER_URL. What that leaves open is in docs/sqlserver-next.md.
//
// The database needs READ_COMMITTED_SNAPSHOT: then a statement sees one moment, and a page is one statement. Each statement stands in a
// file of the directory statements, with a comment.
//
// Read driver.go and tx.go first, and then page.go and apply.go.
package next
