// Package driver keeps what package engine needs in a SQLite database: see engine/driver for what that is.
//
//   - database.go, own_tx.go and transact.go run transactions of the driver's own, and within.go and commits.go are about the
//     caller's.
//   - tx.go runs statements, and statements.go prepares them. They stand beside what uses them: searches.go, topics.go, page.go
//     and pages.go read, apply.go, ack.go and notes.go write, and content.go does both.
//   - rows.go and values.go convert between columns and fields.
//   - entries.go has small things, schema.go the tables, and examine.go the doctor's questions.
//
// SQLite has one writer at a time: nothing changes between what a write transaction reads and what it writes.
// What the contract says of locks and of lost rows is therefore cheap here.
package driver
