// Package segments keeps the log small. The log is in segments, one of which appends write to. A Keeper has them write to another one when
// it is full, and truncates those of which nothing is needed: docs/postgres-log.md says why that is right.
//
// Each step is bounded and a transaction of its own, and goes on where the last one ended, also that of another process. Read keeper.go
// first.
package segments

import (
	"context"
	"embed"

	"github.com/jackc/pgx/v5"
)

var (
	// Schema creates what the upkeep needs besides the tables of the log, with the placeholders of package driver.
	//
	//go:embed schema.sql
	Schema string
	// Statements are the statements of the upkeep with their names.
	//
	//go:embed statements.sql
	Statements embed.FS
)

// Count is the number of segments.
const Count = 3

// Segment is the placeholder for the number of a segment, in statements whose names begin with each, which comes before the number.
const (
	Segment = "{segment}"
	Each    = "segment_"
)

// Chain is a cursor over a line, as the history of the registrations has it.
type Chain struct {
	Number int64
	// BeginPos and BeginSeen are the mark of its begin.
	BeginPos  int64
	BeginSeen string
}

// History is that of the registrations.
type History struct {
	// Chains returns the chains of a line that have not ended, with the one that waits.
	Chains func(line string) []Chain
	// Dropping reports whether the steps of a drop go on that may give back rows of the line.
	Dropping func(line string) bool
}

// Log is what the upkeep asks of the log.
type Log interface {
	// Begin begins a READ COMMITTED transaction with the driver's settings.
	Begin(ctx context.Context) (pgx.Tx, error)
	// Change runs one statement by its name in a READ COMMITTED transaction of its own, and returns how many rows it has changed.
	Change(ctx context.Context, name string, args ...any) (changed int64, err error)
	// One reads one row by a statement, without a transaction around it.
	One(ctx context.Context, name string, into ...any) error
	// Text returns a statement by its name.
	Text(name string) string
	// Hold keeps the registrations as they are until the end of the transaction.
	Hold(ctx context.Context, tx pgx.Tx) (History, error)
	// Lock locks the tables and a chain.
	Lock(ctx context.Context, tx pgx.Tx, line string, chain int64) error
	// Move moves rows of a chain to the records: those of batches whose leases have ended, and up to a limit those that are not read. It
	// returns how many, and how many places the cursor has passed.
	Move(ctx context.Context, tx pgx.Tx, line string, chain int64) (moved int, err error)
	// Grows says that the segment to which appends write has so many bytes, and that the others are kept.
	Grows(bytes int64)
}
