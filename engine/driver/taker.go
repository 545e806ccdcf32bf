package driver

import (
	"context"
	"time"

	"github.com/outmill/outmill"
)

// Taker is a DB that can lease the first rows of a line, and read their content, in one round trip, where nothing but their places decides
// about them. The engine asks it before it reads a page.
type Taker interface {
	// Take leases rows in their order, and commits. taken is false if the line has something for which the engine has a rule: then
	// nothing is written, and the claim reads pages. It is true, without rows, only if the line has nothing that may be claimed, or, with
	// Free, if another claim has it at that moment.
	//
	// The engine has a rule for a row whose key or tenant is paused, for a note that does not block the claim, and, unless Free is true, for a
	// row of which another one with the same key is held, waits for a retry or is leased.
	Take(ctx context.Context, take Take) (rows []Taken, taken bool, err error)
}

// Take is what a claim of one line asks of a Taker.
type Take struct {
	Line   Line
	Owner  outmill.OwnerToken
	Worker string
	Lease  time.Duration
	// Limit is how many rows at most.
	Limit int
	// MaxBytes is how many bytes the rows have together at most, and MaxRow how many each of them has, because the content of a Take is in
	// memory before its lease is stored. The rows end before one with which they have more than MaxBytes. If the first one has more, or any
	// one more than MaxRow, the claim reads pages.
	MaxBytes, MaxRow int
	// Free says that keys block nothing, and that the claim waits for no other one. Rows that are due by their places are due in that order.
	Free bool
	// Alone says that a row of the line that another owner has blocks the whole line.
	Alone bool
	// Parks says that a parked row blocks its key.
	Parks bool
	// Open are the Blockers of notes that do not block the claim, but for those of pauses: see Ask.Free.
	Open []string
	// Pauses is the generation of the pauses, none of which is of the whole line. PausedKeys and PausedTenants are what they are of, and
	// the claim takes no row of these. PausedBy are the Blockers of their notes: a note with the Blocker of another pause does not block the
	// claim.
	Pauses                              int64
	PausedKeys, PausedTenants, PausedBy []string
	Durable                             bool
	// Listed says that all rows end together: the metadata may be in Content.Entries, and the records may share memory.
	Listed bool
}

// Taken is a row that a Taker has leased.
type Taken struct {
	// Content is as that of Read, and all other fields of the record are set, too.
	Content
	Seq int64
}
