package memstore

import (
	"slices"
	"sync"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Database has the records of the stores that share it, until the program ends. It is safe
// for concurrent use.
type Database struct {
	mu sync.Mutex
	// ahead is how far the clock of the database is ahead of the machine's.
	ahead time.Duration
	made  bool

	// rows has the rows in the order of their commits. Removed rows stay until half of the
	// rows are removed.
	rows []*row
	gone int
	byID map[outmill.WorkItemID]*row
	seq  int64
	keys map[storekit.DedupKey]noted

	notes table[noteKey, noteRow]
	sagas table[sagaKey, savedSaga]
	// guards are the fields of states that are unique, by the type of the sagas.
	guards map[string][]string

	registrations []registration
	workers       []worker
	ended         map[string]time.Time
	// dropping has the selections of the other groups when the drop of a group began.
	dropping map[string]storekit.Selections
	// turn is the index in the list of topics at which the next claim begins.
	turn int

	// pauses is replaced with each change.
	pauses *storekit.PauseList

	// audited has the entries of the audit, the oldest first, and audits is the last number.
	audited []storekit.AuditEntry
	audits  int64

	notifier storekit.Notifier
	delay    delay
}

// NewDatabase returns an empty database.
func NewDatabase() *Database {
	return &Database{
		byID:  map[outmill.WorkItemID]*row{},
		keys:  map[storekit.DedupKey]noted{},
		ended: map[string]time.Time{},

		dropping: map[string]storekit.Selections{},

		notes: newTable[noteKey, noteRow](),
		sagas: newTable[sagaKey, savedSaga](),

		guards: map[string][]string{},
		pauses: storekit.NewPauseList(1, nil),
	}
}

// Elapse moves the clock of the database forward by d, so that a test need not wait.
func (d *Database) Elapse(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ahead += by
}

// now returns the database's time, in microseconds as other engines have it.
func (d *Database) now() time.Time {
	return time.Now().UTC().Add(d.ahead).Truncate(time.Microsecond)
}

// row is a record with the fields that only the store knows.
type row struct {
	outmill.Record
	seq int64
	// next is when the record is due. It is also set while the record is leased.
	next time.Time
	// parked says that it is dead because its key was parked; behind, that an ordered claim
	// found it behind an earlier record of its key; gone, that it was removed.
	parked, behind, gone bool
}

func (r *row) expired(now time.Time) bool {
	return !r.ExpiresAt.IsZero() && !r.ExpiresAt.After(now)
}

// leased reports whether the row's lease has not ended.
func (r *row) leased(now time.Time) bool {
	return r.Status == outmill.StatusLeased && r.LeaseUntil.After(now)
}

func (r *row) leaseEnded(now time.Time) bool {
	return r.Status == outmill.StatusLeased && !r.leased(now)
}

// waitsForRetry reports whether the row was claimed before and is due later.
func (r *row) waitsForRetry(now time.Time) bool {
	return r.Status == outmill.StatusPending && r.Claims > 0 && r.next.After(now) && !r.expired(now)
}

// undelivered reports whether the row is pending or its lease has ended.
func (r *row) undelivered(now time.Time) bool {
	return r.Status == outmill.StatusPending || r.leaseEnded(now)
}

// open ends the row's lease.
func (r *row) open(status outmill.Status) {
	r.Status = status
	r.Owner, r.LeaseUntil = outmill.OwnerToken{}, time.Time{}
}

func (r *row) kill(reason string) {
	r.open(outmill.StatusDead)
	r.LastError = reason
}

// reap counts the expiry of a lease that has ended.
func (r *row) reap() {
	if r.Expiries >= outmill.SuspectExpiries {
		r.Attempts++
	}
	r.Expiries++
	r.open(outmill.StatusPending)
}

// copied returns a copy of the record that shares no memory with it.
func copied(r *outmill.Record) *outmill.Record {
	c := *r
	c.Payload = slices.Clone(r.Payload)
	c.Joins = slices.Clone(r.Joins)
	if r.Metadata != nil {
		c.Metadata = make(map[string]string, len(r.Metadata))
		for k, v := range r.Metadata {
			c.Metadata[k] = v
		}
	}
	return &c
}

// record returns a copy of the row's record for a caller.
func (d *Database) record(r *row, now time.Time) *outmill.Record {
	c := copied(&r.Record)
	waits := r.behind && d.blocked(r, now)
	if r.Status == outmill.StatusPending && !waits {
		c.NextAttemptAt = r.next
	}
	return c
}

// blocked reports whether an earlier row of the key is leased or waits for its retry.
func (d *Database) blocked(r *row, now time.Time) bool {
	return slices.ContainsFunc(d.rows, func(other *row) bool {
		return other.seq < r.seq && !other.gone && other.Group == r.Group && other.Topic == r.Topic && other.Key == r.Key &&
			(other.leased(now) || other.waitsForRetry(now))
	})
}

// each calls fn for every row, in their order.
func (d *Database) each(fn func(r *row)) {
	for _, r := range d.rows {
		if !r.gone {
			fn(r)
		}
	}
}

func (d *Database) insert(r *row) {
	d.seq++
	r.seq = d.seq
	d.rows = append(d.rows, r)
	d.byID[r.ID] = r
}

func (d *Database) remove(r *row) {
	r.gone = true
	d.gone++
	delete(d.byID, r.ID)
	if 2*d.gone > len(d.rows) {
		d.rows = slices.DeleteFunc(d.rows, func(r *row) bool { return r.gone })
		d.gone = 0
	}
}

// removeUpTo removes up to limit matching rows, and returns their number.
func (d *Database) removeUpTo(limit int, match func(r *row) bool) int {
	var found []*row
	d.each(func(r *row) {
		if len(found) < limit && match(r) {
			found = append(found, r)
		}
	})
	for _, r := range found {
		d.remove(r)
	}
	return len(found)
}
