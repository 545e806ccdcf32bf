package storekit

import (
	"errors"
	"fmt"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// CheckNote returns an ErrInvalidRecord for every invalid value, joined. Stores call it.
func CheckNote(n roles.Note) error {
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

// NoteKeptFor is the time after which DeleteNotes looks again at a note that it has kept because
// its record is not processed.
const NoteKeptFor = time.Hour

// DeleteNotes implements Inbox.DeleteNotes for stores, in steps. step takes up to limit notes whose
// time has come, deletes those that are no longer needed, and puts the others off by NoteKeptFor,
// in one transaction.
func DeleteNotes(limit int, step func(limit int) (deleted, kept int, err error)) (all int, err error) {
	for {
		deleted, kept, err := step(limit - all)
		all += deleted
		if err != nil || kept == 0 || all+kept < limit {
			return all, err
		}
	}
}
