// Package driver keeps what package engine needs in a SQLite database: see engine/driver for what that is.
//
// Transactions of the driver's own are in database.go, own_tx.go and transact.go, and those of callers in within.go and
// commits.go. Statements stand beside what uses them; tx.go runs them. Columns become fields in rows.go and values.go.
//
// SQLite has one writer at a time: nothing changes between what a write transaction reads and what it writes.
// What the contract says of locks and of lost rows is therefore cheap here.
package driver
