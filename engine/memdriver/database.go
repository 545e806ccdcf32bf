// Package memdriver is a driver in memory. It is the reference of package driver: what another driver does in
// its database, this one does in a few lines of Go. storetest/memstore makes a store of it for tests of
// applications.
package memdriver

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// Database has what the drivers on it share, as several processes share one database. The zero value is
// not usable: see New. It is safe for concurrent use.
type Database struct {
	mu sync.Mutex
	// ahead is how far the clock is ahead of that of the process.
	ahead time.Duration
	made  bool

	seq     int64
	byID    map[outmill.WorkItemID]*stored
	lines   map[driver.Line][]*stored // each by Seq
	notes   map[noteKey]*driver.Note
	entries map[entryKey]*driver.Entry
	// taken are the entries that open transactions of callers have changed.
	taken map[entryKey]*Tx
	driver.Generations
	notifier storekit.Notifier

	// delay is how late the database answers, and delayed how many transactions began late.
	delay, delayed atomic.Int64
	// guards are the unique indexes of users.
	guards []func(changed, other driver.Entry) error
	// lose, for tests, says which rows an Apply loses.
	lose func() bool
}

// stored is a row with its content. It never changes: a change puts another one in its place.
type stored struct {
	driver.Row
	// record has the last error, too.
	record  *outmill.Record
	history string
	// identity, metadata and payload say why those parts cannot be decoded, for tests of package engine. Row.Broken has
	// identity, and the same of the state.
	identity, metadata, payload string
}

type noteKey struct {
	driver.Line
	name string
}

type entryKey struct{ kind, key string }

// New returns an empty database.
func New() *Database {
	return &Database{
		byID: map[outmill.WorkItemID]*stored{}, lines: map[driver.Line][]*stored{}, notes: map[noteKey]*driver.Note{},
		entries: map[entryKey]*driver.Entry{}, taken: map[entryKey]*Tx{},
	}
}

// Elapse moves the clock of the database forward, so that a test need not wait.
func (d *Database) Elapse(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ahead += by
}

func (d *Database) now() driver.Time { return driver.Time(time.Now().Add(d.ahead).UnixMicro()) }

// Guard has a change of an entry fail for which guard returns an error with one of the others, as a unique index
// of a user does.
func (d *Database) Guard(guard func(changed, other driver.Entry) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.guards = append(d.guards, guard)
}

// Delay has each further transaction on the database begin only after that time, so that a test sees what a slow
// database does, or with an hour one that hangs. Most calls of a store are one or two transactions. A call whose
// context ends before returns the error of the context. 0, as at first, is no delay.
func (d *Database) Delay(by time.Duration) { d.delay.Store(int64(by)) }

// Delayed is how many transactions have been delayed so far.
func (d *Database) Delayed() int { return int(d.delayed.Load()) }

// late waits for the delay. It returns the error of a context that ends before.
func (d *Database) late(ctx context.Context) error {
	by := time.Duration(d.delay.Load())
	if by <= 0 {
		return ctx.Err()
	}
	d.delayed.Add(1)
	return storekit.Pause(ctx, by)
}

// put puts s in the place of the row with this id; nil deletes it.
func (d *Database) put(id outmill.WorkItemID, s *stored) {
	was := d.byID[id]
	putIn(d.byID, id, s)
	if was != nil {
		rows := d.lines[was.Line]
		at, _ := place(rows, was.Seq)
		if s != nil && s.Line == was.Line {
			rows[at] = s
			return
		}
		if d.lines[was.Line] = slices.Delete(rows, at, at+1); len(rows) == 1 {
			delete(d.lines, was.Line)
		}
	}
	if s != nil {
		at, _ := place(d.lines[s.Line], s.Seq)
		d.lines[s.Line] = slices.Insert(d.lines[s.Line], at, s)
	}
}

// putIn sets the value of a key; nil deletes it.
func putIn[K comparable, V any](m map[K]*V, key K, value *V) {
	if delete(m, key); value != nil {
		m[key] = value
	}
}

func place(rows []*stored, seq int64) (at int, found bool) {
	return slices.BinarySearchFunc(rows, seq, func(s *stored, seq int64) int { return cmp.Compare(s.Seq, seq) })
}

// newRow is a row with its content. It shares nothing with the record of the caller.
func newRow(n driver.NewRow) *stored {
	r := n.Record
	c := &outmill.Record{
		MessageID: n.Message, Payload: slices.Clone(r.Payload), Metadata: maps.Clone(r.Metadata),
		CorrelationID: r.CorrelationID, CausationID: r.CausationID, TraceParent: r.TraceParent, TraceState: r.TraceState,
		Joins: slices.Clone(r.Joins), DedupKey: r.DedupKey, DueAt: max(n.Next, n.Created).Of(),
	}
	if len(c.Metadata) == 0 {
		c.Metadata = nil
	}
	return &stored{Row: n.Row, record: c}
}

// content returns a copy of the content, with the parts that want names.
func (s *stored) content(want driver.Want) driver.Content {
	c, r := driver.Content{}, *s.record
	r.Payload, r.Metadata, r.Joins = nil, nil, slices.Clone(r.Joins)
	if want&driver.Payload != 0 {
		r.Payload, c.Broken = slices.Clone(s.record.Payload), s.payload
	}
	if want&driver.Metadata != 0 {
		r.Metadata, c.Broken = maps.Clone(s.record.Metadata), c.Broken+s.metadata
	}
	if want&driver.History != 0 {
		c.History = s.history
	}
	c.Record = &r
	return c
}

func (d *Database) contents(rows []driver.Row, want driver.Want) []driver.Content {
	contents := make([]driver.Content, len(rows))
	for i, r := range rows {
		if s := d.byID[r.ID]; s != nil {
			contents[i] = s.content(want)
			if want&driver.Listed != 0 {
				list(&contents[i])
			}
		}
	}
	return contents
}

// list makes a list of the metadata.
func list(c *driver.Content) {
	for name, value := range c.Record.Metadata {
		c.Entries = append(c.Entries, roles.MetadataEntry{Name: name, Value: value})
	}
	c.Record.Metadata = nil
}
