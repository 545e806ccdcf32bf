package storekit

import (
	"bytes"
	"context"
	"time"

	"github.com/outmill/outmill"
)

// WaitingReader is the role of a store that shows which records of a group and topic wait, without
// their content, so that a person learns who is in front of a record and which records hold up
// others. outmill.As finds it.
type WaitingReader interface {
	// FirstWaiting returns the first records of a group and topic that are not settled, up to limit
	// (1 to [roles.MaxExamined]) of each kind; "" is the records that wait for a first group. It reads no
	// more than these, by an index, however many there are. Records that an open transaction
	// appends or changes are as they were before it.
	FirstWaiting(ctx context.Context, group, topic string, limit int) (Waiting, error)
}

// Waiting are the first records of a group and topic that wait, by kind.
type Waiting struct {
	// Now is the database's time.
	Now   time.Time
	Kinds []WaitingKind
}

// WaitingKind are records of one kind, the first ones of those that the store has.
type WaitingKind struct {
	Records []WaitingRecord
	// More says that the store may have more of them.
	More bool
}

// WaitingRecord is a record without its content.
type WaitingRecord struct {
	ID outmill.WorkItemID
	// Stage is StageReady, StageHeld, StageAside, StageWaiting, StageDelayed or StageLeased. A store
	// leaves out delayed records that are not due yet, and may leave out those of StageLeased whose
	// lease has not ended and that have no failed attempt.
	Stage int
	// DueAt is when it became or becomes due; for StageLeased the end of its lease.
	DueAt    time.Time
	Key      string
	TenantID string
	Attempts int
}

// IsDue reports whether a claim may return the record at that time. One that is held may wait for an
// earlier record of its key; one that is aside is paused.
func (r WaitingRecord) IsDue(now time.Time) bool { return r.Stage != StageAside && !r.DueAt.After(now) }

// Before counts the due records that became due before the record, and those of them with its key.
// more says that there may be more.
func (w Waiting) Before(r *outmill.Record) (n, sameKey int, more bool) {
	due := w.dueAt(r)
	for _, kind := range w.Kinds {
		whole := !kind.More
		for _, other := range kind.Records {
			whole = whole || other.endsBefore(r, due)
			if c := other.DueAt.Compare(due); other.ID == r.ID || !other.IsDue(w.Now) || c > 0 || c == 0 && bytes.Compare(other.ID[:], r.ID[:]) > 0 {
				continue
			}
			n++
			if r.Key != "" && other.Key == r.Key {
				sameKey++
			}
		}
		more = more || !whole
	}
	return n, sameKey, more
}

// endsBefore reports whether no record behind this one, in its kind, became due before the other. Ready and held
// records are in the order of their appends, and one that was given back or delayed is due later than
// records behind it; the other kinds are in the order of their due times.
func (r WaitingRecord) endsBefore(of *outmill.Record, due time.Time) bool {
	switch r.Stage {
	case StageReady, StageHeld:
		return r.ID == of.ID && of.Claims == 0 && !due.After(of.CreatedAt)
	case StageAside:
		return true
	}
	return r.DueAt.After(due)
}

// dueAt is when the record became due.
func (w Waiting) dueAt(r *outmill.Record) time.Time {
	for _, kind := range w.Kinds {
		for _, other := range kind.Records {
			if other.ID == r.ID {
				return other.DueAt
			}
		}
	}
	if r.NextAttemptAt.Before(r.CreatedAt) {
		return r.CreatedAt
	}
	return r.NextAttemptAt
}

// OldestUnpaused returns since when the record has been due that has been due longest and is not
// paused; zero if there is none. What is aside is due where it is not paused any more.
func (w Waiting) OldestUnpaused(paused func(r WaitingRecord) bool) (oldest time.Time) {
	for _, r := range w.All() {
		if !r.DueAt.After(w.Now) && !paused(r) && (oldest.IsZero() || r.DueAt.Before(oldest)) {
			oldest = r.DueAt
		}
	}
	return oldest
}

// Behind counts the due records of the record's key that were appended after it. more says that there
// may be more.
func (w Waiting) Behind(r WaitingRecord) (n int, more bool) {
	for _, kind := range w.Kinds {
		for _, other := range kind.Records {
			if other.Key == r.Key && other.IsDue(w.Now) && bytes.Compare(other.ID[:], r.ID[:]) > 0 {
				n++
			}
		}
		more = more || kind.More
	}
	return n, more
}

// All returns the records of all kinds.
func (w Waiting) All() []WaitingRecord {
	var all []WaitingRecord
	for _, kind := range w.Kinds {
		all = append(all, kind.Records...)
	}
	return all
}
