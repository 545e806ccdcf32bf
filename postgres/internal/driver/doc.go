// Package driver is the driver of package engine for PostgreSQL: rows, notes and entries in tables. Its log, for rows that are due at
// once, is in the files log*.go; docs/postgres-log.md draws it, and says why it is right.
//
// Each statement stands in a file of the directory statements, with a comment. A DBA finds its name in pg_stat_statements: lease is
// a claim, ack an ack, insert an append, change what else becomes of records.
//
// Read driver.go and tx.go first, and then page.go and apply.go.
package driver
