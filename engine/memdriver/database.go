package memdriver

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
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
	notes   map[noteKey]driver.Note
	entries map[entryKey]driver.Entry
	// taken are the entries that open transactions of callers have changed.
	taken map[entryKey]*Tx
	driver.Generations
	notifier storekit.Notifier

	// guards are the unique indexes of users.
	guards []func(changed, other driver.Entry) error
	// lose, for tests, says which rows an Apply loses.
	lose func() bool
}

// stored is a row with its content. Its record has the last error, too.
type stored struct {
	driver.Row
	record  *outmill.Record
	history string
	damage  damage
}

type noteKey struct {
	driver.Line
	name string
}

type entryKey struct{ kind, key string }

// New returns an empty database.
func New() *Database {
	return &Database{
		byID: map[outmill.WorkItemID]*stored{}, lines: map[driver.Line][]*stored{}, notes: map[noteKey]driver.Note{},
		entries: map[entryKey]driver.Entry{}, taken: map[entryKey]*Tx{},
	}
}

// Elapse moves the clock of the database on.
func (d *Database) Elapse(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ahead += by
}

// Guard has a change of an entry fail for which guard returns an error with one of the others, as a unique index
// of a user does.
func (d *Database) Guard(guard func(changed, other driver.Entry) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.guards = append(d.guards, guard)
}

// Lose has each Apply lose the rows for which lose returns true, as if another call had changed them. It is for
// tests of package engine; nil loses none.
func (d *Database) Lose(lose func() bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lose = lose
}

func (d *Database) now() driver.Time { return driver.Time(time.Now().Add(d.ahead).UnixMicro()) }

// insert adds a new row.
func (d *Database) insert(n driver.NewRow) {
	d.add(&stored{Row: n.Row, record: contentOf(n)})
}

func (d *Database) add(s *stored) {
	d.byID[s.ID] = s
	rows := d.lines[s.Line]
	at, _ := place(rows, s.Seq)
	d.lines[s.Line] = slices.Insert(rows, at, s)
}

func (d *Database) drop(s *stored) {
	delete(d.byID, s.ID)
	rows := d.lines[s.Line]
	at, found := place(rows, s.Seq)
	if !found {
		return
	}
	if rows = slices.Delete(rows, at, at+1); len(rows) == 0 {
		delete(d.lines, s.Line)
		return
	}
	d.lines[s.Line] = rows
}

func place(rows []*stored, seq int64) (at int, found bool) {
	return slices.BinarySearchFunc(rows, seq, func(s *stored, seq int64) int { return cmp.Compare(s.Seq, seq) })
}

// contentOf is the content that Load returns. It shares nothing with the record of the caller.
func contentOf(n driver.NewRow) *outmill.Record {
	r := n.Record
	c := &outmill.Record{
		MessageID: n.Message, Payload: slices.Clone(r.Payload), Metadata: maps.Clone(r.Metadata),
		CorrelationID: r.CorrelationID, CausationID: r.CausationID, TraceParent: r.TraceParent, TraceState: r.TraceState,
		Joins: slices.Clone(r.Joins), DedupKey: r.DedupKey, DueAt: max(n.Next, n.Created).Of(),
	}
	if len(c.Metadata) == 0 {
		c.Metadata = nil
	}
	return c
}

// content returns a copy of the content, with the parts that want names.
func (s *stored) content(want driver.Want) driver.Content {
	c, r := driver.Content{Broken: s.damage.of(want)}, *s.record
	r.Payload, r.Metadata, r.Joins = nil, nil, slices.Clone(r.Joins)
	if want&driver.Payload != 0 && !s.damage.has(PayloadColumn) {
		r.Payload = slices.Clone(s.record.Payload)
	}
	if want&driver.Metadata != 0 && !s.damage.has(MetadataColumn) {
		r.Metadata = maps.Clone(s.record.Metadata)
	}
	if want&driver.History != 0 {
		c.History = s.history
	}
	c.Record = &r
	return c
}
