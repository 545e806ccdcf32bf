package roles

import (
	"context"
	"errors"
	"time"

	"github.com/outmill/outmill"
)

// ErrNoteBusy says that another open transaction has noted the same message for the same
// consumer. The message is delivered again later. If that transaction has committed by
// then, the message is a duplicate; otherwise it is new.
var ErrNoteBusy = errors.New("outmill: another handler is handling the same message")

// Note says that a consumer has handled a message.
type Note struct {
	// Consumer separates the notes of consumers: each handles the message once. 1 to 255
	// UTF-16 units, case-sensitive, no blanks at the ends.
	Consumer string
	// Key identifies the message, usually by its UUID. It has the same limits.
	Key string
	// Retention is how long the note is kept, by the database's clock; more than 0. A
	// note must outlive every redelivery of its message.
	Retention time.Duration
	// Lease is the lease under which the same store has delivered the message; PutNote checks it,
	// and the note lives at least as long as its record. Zero is a message from elsewhere. Its
	// Store matters only to a store that is made of several.
	Lease outmill.Lease
}

// Own reports whether the same store has delivered the message.
func (n Note) Own() bool { return !n.Lease.ID.IsZero() }

// Inbox keeps notes of handled messages, for idempotent consumers.
//
// A handler writes the note and its own changes in one transaction. Of several transactions
// that note the same message for the same consumer, exactly one commits. The note is what
// keeps a message from being handled twice: its record is acked after the commit, and if that
// is prevented, the message comes again, and is a duplicate. A note counts until DeleteNotes
// deletes it.
type Inbox interface {
	// PutNote writes the note in the transaction of ctx. If the note exists, it writes nothing
	// and returns duplicate true; the transaction stays usable.
	//
	// If Note.Lease is set, the same call reads, without a lock, whether the lease is valid, as
	// Queue.Ack does. If it is not, PutNote writes nothing and returns outmill.ErrLeaseLost; the
	// transaction stays usable.
	//
	// If another open transaction has written the note, PutNote waits for it for at most wait,
	// and then returns ErrNoteBusy. The caller must then roll back; Transact does not repeat
	// the transaction. MongoDB reports the other transaction at once, so PutNote never waits
	// there. It also returns ErrNoteBusy there if the other transaction has committed since
	// this one began. SQLite never has two open writers. A time limit that the call sets for
	// itself in the transaction has ended when it returns.
	//
	// Without a transaction in ctx PutNote commits by itself, for stores without transactions. It
	// does not look at the lease then, because the handler has done its work.
	//
	// Errors: outmill.ErrInvalidRecord, outmill.ErrLeaseLost, ErrNoteBusy, outmill.ErrForeignTx,
	// outmill.ErrInvalidTx.
	PutNote(ctx context.Context, note Note, wait time.Duration) (duplicate bool, err error)

	// HasNote reports whether the message was noted for the consumer, in a transaction
	// that has committed or that ctx carries.
	HasNote(ctx context.Context, consumer, key string) (bool, error)

	// DeleteNotes deletes up to limit notes whose retention has passed, and returns their
	// number. A number below limit means that none is left. It keeps the note of a message of
	// this store (Note.Lease) as long as the record exists and is not processed, however long
	// that takes: a record that is dead, paused or unread may come again. It looks at a note
	// that it keeps so again after an hour. On MongoDB a TTL index deletes other notes too.
	DeleteNotes(ctx context.Context, limit int) (int, error)
}
