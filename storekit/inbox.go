package storekit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outmill/outmill"
)

// ErrNoteBusy says that another transaction, which is still open, has noted the same
// message for the same consumer. The message comes again: by then that transaction has
// committed, and the message is a duplicate, or it has not, and the message is new.
var ErrNoteBusy = errors.New("outmill: another handler is at the same message")

// Note says that a consumer has handled a message.
type Note struct {
	// Consumer separates the notes of consumers: each handles the message once. 1 to 255
	// UTF-16 units, case-sensitive, no blanks at the ends.
	Consumer string
	// Key identifies the message, such as by its UUID. The same limits.
	Key string
	// Retention is how long the note is kept, by the database's clock; more than 0. A
	// note must outlive every redelivery of its message.
	Retention time.Duration
}

// Validate reports every value that makes no sense, as ErrInvalidRecord. Stores call it.
func (n Note) Validate() error {
	var errs []error
	for field, value := range map[string]string{"consumer": n.Consumer, "key": n.Key} {
		reason := checkName(value)
		if value == "" {
			reason = "is empty: want 1 to 255 characters"
		}
		if reason != "" {
			errs = append(errs, &outmill.InvalidRecordError{Index: -1, Field: "note " + field, Reason: reason})
		}
	}
	if n.Retention <= 0 {
		errs = append(errs, &outmill.InvalidRecordError{Index: -1, Field: "note retention",
			Reason: fmt.Sprintf("is %s: want more than 0", n.Retention)})
	}
	return errors.Join(errs...)
}

// Inbox keeps notes of handled messages, for idempotent consumers.
//
// A note and what the handler does belong to one transaction: of several transactions
// that note the same message for the same consumer, exactly one commits. A note whose
// retention has passed counts until the janitor deletes it.
type Inbox interface {
	// PutNote notes, in the transaction of ctx, that the consumer handles the message,
	// and reports whether it was noted before: then it writes nothing, and the
	// transaction stays usable.
	//
	// Where another open transaction has noted it, PutNote waits for that one for wait at
	// most, and then returns ErrNoteBusy. After that the transaction must be rolled back;
	// Transact does not repeat it. MongoDB reports the other transaction at once, so it never
	// waits, and returns ErrNoteBusy also where that one has committed since this one began.
	// On SQLite there are no two open writers.
	//
	// Without a transaction in ctx PutNote commits by itself, for a store that has none.
	//
	// Errors: outmill.ErrInvalidRecord, ErrNoteBusy, outmill.ErrForeignTx.
	PutNote(ctx context.Context, note Note, wait time.Duration) (duplicate bool, err error)

	// HasNote reports whether the message was noted for the consumer, in a transaction
	// that has committed or that ctx carries.
	HasNote(ctx context.Context, consumer, key string) (bool, error)

	// DeleteNotes deletes up to limit notes whose retention has passed, and returns how
	// many it did; fewer than limit means that it is done. On MongoDB a TTL index does
	// so too.
	DeleteNotes(ctx context.Context, limit int) (int, error)
}
