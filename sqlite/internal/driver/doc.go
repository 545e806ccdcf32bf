// Package driver keeps what package engine needs in a SQLite database: see engine/driver for what that is.
//
//   - database.go and own_tx.go run transactions of the driver's own, and within.go runs in the caller's.
//   - tx.go runs statements. reads.go, searches.go, topics.go, writes.go and notes.go have their texts.
//   - rows.go and content.go convert between columns and fields.
//   - apply.go writes changes, entries.go small things.
//
// SQLite has one writer at a time: nothing changes between what a write transaction reads and what it writes.
// What the contract says of locks and of lost rows is therefore cheap here.
package driver
