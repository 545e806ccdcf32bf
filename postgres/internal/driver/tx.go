package driver

import (
	"context"
	"errors"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

// tx is a transaction: the driver's own, or the caller's. Its statements are queued, and sent by flush. A write that returns
// nothing waits in the queue for the next call, or for the commit.
type tx struct {
	d     *Driver
	to    sender
	queue []step
	// trips is how often it has sent statements.
	trips int
	// own is nil in a caller's transaction.
	own *ownTx
	// locks says that searches may lock rows.
	locks bool
	state driver.State
	begun *read
	// rides says that the commit may travel with the last write.
	rides bool
	// inserts says that the transaction ends with its Insert.
	inserts bool
	// holds says that the registrations may not change until the transaction ends.
	holds bool
	// guesses says that the state is that of an earlier transaction. See guess.
	guesses, durable bool
	// caller is the transaction of a caller in which a guess inserts: see AppendWithin.
	caller sender
	// notifies says that a notification was queued.
	notifies bool
	// log is nil in a driver without one.
	log *txLog
	// reads says that it is a Read without a transaction.
	reads bool
	// writers are the transactions that had written the notes that this one has read.
	writers map[noteKey]int64
	storekit.AfterCommit
}

var _ driver.Tx = (*tx)(nil)

// State returns what the transaction knows about the database.
func (t *tx) State() driver.State { return t.state }

func (t *tx) add(name string, args []any, row func(scan scan) error) {
	t.addStep(step{text: t.d.names.text(name, t.locks), args: args, row: row})
}

func (t *tx) addStep(s step) {
	t.begun = nil
	t.queue = append(t.queue, s)
}

func (t *tx) flush(ctx context.Context) error {
	steps := t.queue
	t.queue = nil
	if len(steps) == 0 {
		return nil
	}
	if t.own != nil && t.own.over {
		return errOver
	}
	t.trips++
	return t.to.send(ctx, steps)
}

// collect queues a statement, and returns where its rows will be.
func collect[T any](t *tx, name string, args []any, read func(scan scan, item *T) error) *[]T {
	found := new([]T)
	t.add(name, args, func(scan scan) error {
		var item T
		if err := read(scan, &item); err != nil {
			return err
		}
		*found = append(*found, item)
		return nil
	})
	return found
}

// list sends what is queued and a statement, and returns its rows.
func list[T any](ctx context.Context, t *tx, name string, args []any, read func(scan scan, item *T) error) ([]T, error) {
	found := collect(t, name, args, read)
	err := t.flush(ctx)
	return *found, err
}

// changed sends what is queued and a statement, and returns how many rows it has changed.
func (t *tx) changed(ctx context.Context, name string, args ...any) (n int, err error) {
	t.addStep(step{text: t.d.names.text(name, false), args: args, done: func(changed int) error {
		n = changed
		return nil
	}})
	err = t.flush(ctx)
	return n, err
}

// addState queues the read of the state.
func (t *tx) addState() {
	s := &t.state
	found := false
	t.addStep(step{text: t.d.names.text("state", false), row: func(scan scan) error {
		found = true
		var version storekit.SchemaVersion
		if err := scan(&version.Version, &version.Compatible, &s.Routes, &s.Pauses, (*int64)(&s.Now), &s.Notes, &s.Paused, &s.Unrouted,
			&t.log.shown, &t.log.event, &t.log.segment); err != nil {
			return err
		}
		// A caller's transaction may see an older state than others, or one that is never committed. A guess of it is checked.
		seen := *s
		t.keepSegment()
		t.d.last.Store(&seen)
		return version.Check(schemaVersion)
	}, done: func(int) error {
		if !found {
			return storekit.SchemaVersion{}.Check(schemaVersion)
		}
		return nil
	}})
}

// addFirst queues the first read. The time is not known yet, and 0 is now.
func (t *tx) addFirst(begin driver.Begin) {
	r := &read{Begin: begin}
	if t.log.history == nil {
		return // it needs the registrations
	}
	switch {
	case begin.Ask != nil:
		r.page = t.addPage(*begin.Ask)
	case begin.Find != nil:
		r.found = t.addFind(begin.Find)
	case len(begin.Searches) > 0:
		r.rows = t.addSearches(begin.Searches)
	case begin.Topics != nil:
		r.lines = t.addDue(*begin.Topics)
	}
	t.begun = r
}

// read is the first read, which was sent with the begin. It answers one call, the first of the transaction.
type read struct {
	driver.Begin
	page  func() driver.Page
	rows  func() []driver.Row
	found *found
	lines *[]dueLine
}

// first returns the first read if no other call has come before.
func (t *tx) first() read {
	if t.begun == nil {
		return read{}
	}
	r := *t.begun
	t.begun = nil
	return r
}

// errOver says that a call came after the last one, whose commit has taken effect.
var errOver = errors.New("a call came after Changes.Last: the transaction is committed")
