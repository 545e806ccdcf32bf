package driver

import (
	"context"

	"github.com/outmill/outmill"
)

// NewRow is a row to insert, with its content.
type NewRow struct {
	Row
	// Record has the content: payload, texts and joins. The driver copies what it keeps of it, and nothing that a store sets, such as
	// LastError.
	Record *outmill.Record
	// Message is the message id, and Metadata the metadata as JSON, or "" if there is none.
	Message, Metadata string
	// Made says that the publisher has made the id, so no other row has it. A driver with a log needs it.
	Made bool
	// CopyTo are the further groups that read the message. Only InsertMessages gets it: see WithCopies.
	CopyTo []string
}

// MessageInserter is a Tx of a driver with a log, which writes a message once, whatever the number of groups that read it.
type MessageInserter interface {
	// InsertMessages is Insert of WithCopies.
	InsertMessages(ctx context.Context, messages []NewRow) error
}

// WithCopies returns the rows, and behind each those of the further groups of its message.
func WithCopies(messages []NewRow) []NewRow {
	all := len(messages)
	for i := range messages {
		all += len(messages[i].CopyTo)
	}
	if all == len(messages) {
		return messages
	}
	rows := make([]NewRow, 0, all)
	for i := range messages {
		row := messages[i]
		groups := row.CopyTo
		row.CopyTo = nil
		rows = append(rows, row)
		for _, group := range groups {
			row.ID, row.Group = outmill.CopyID(messages[i].ID, group), group
			rows = append(rows, row)
		}
	}
	return rows
}

// Change is a row before and after a change.
type Change struct{ Was, Now Row }

// IsLease reports whether the change is what a claim makes of a row: a statement with few columns can write it.
func (c *Change) IsLease() bool {
	lease, now := c.Was, &c.Now
	lease.Stage, lease.Wake, lease.Owner, lease.Worker, lease.Under = Leased, now.Wake, now.Owner, now.Worker, ""
	lease.Attempts, lease.Claims, lease.Expiries = now.Attempts, lease.Claims+1, now.Expiries
	return lease == *now && lease.Broken == ""
}

// IsExtension reports whether only the end of a lease changes.
func (c *Change) IsExtension() bool {
	extension := c.Was
	extension.Wake = c.Now.Wake
	return extension == c.Now && extension.Stage == Leased && extension.Broken == ""
}

// Changes are written together, in the order of the fields. Rows and Delete are sorted by ID, the notes by line
// and name, and each row and each note is named once in a list, so that transactions wait for each other in one
// order.
type Changes struct {
	// Rows are written only where the Group, Stage, Wake, Owner, Claims and Step of a row are still those of Was. The
	// driver reports the others in Applied.Lost: somebody else has changed or deleted them since they were read.
	// Of a row whose Was is Broken, a driver compares only the columns that it can read. A driver that is Serial need not
	// compare: no row is named that the transaction has not read, or has changed since.
	// A driver writes neither Seq, ID, Topic, Key, Tenant, Created, Step, WaitsFor nor Size.
	Rows []Change
	// Delete are deleted in the same way.
	Delete []Row
	// Open sets Blocker, LookAt and Looks of these notes to nothing, if they exist.
	Open []Note
	// Drop are deleted if they have still the same Looks: otherwise somebody else has opened the note, or has
	// held a row under it.
	Drop []Note
	// Notes are set. If one that is written has its Name as its Blocker, and exists, Head becomes the smaller one, and Looks that of the
	// stored note plus one.
	Notes []Note
	// Last says that no other call follows in the transaction if no row is lost. A driver may send the commit
	// along, if the commit then fails where a row is lost, so that Update runs again.
	Last bool
	// Want is what the caller reads of the content of the rows that become leased, as soon as the transaction is committed. With
	// Last a driver may send that read along, behind the commit: see Applied.
	Want Want
}

// None reports whether there is nothing to write.
func (c *Changes) None() bool {
	return len(c.Rows)+len(c.Delete)+len(c.Open)+len(c.Drop)+len(c.Notes) == 0
}

// Applied says what Apply has done.
type Applied struct {
	// Lost has the IDs of the rows that were not written.
	Lost map[outmill.WorkItemID]bool
	// Contents are those of rows that were leased, as Read returns them after the commit; nil is none. What a page of the transaction
	// has brought is not among them. The caller reads the others.
	Contents map[outmill.WorkItemID]Content
}
