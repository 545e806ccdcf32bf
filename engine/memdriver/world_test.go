package memdriver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
)

// World makes the transactions on a Database run at the same time, as those of a database at READ COMMITTED do.
// Each call of a transaction sees what was committed when it runs, and what the transaction itself has changed.
// Written rows, notes and entries, the lines of Ask.Lock and Bump are locked until the end; a transaction that
// would wait in a circle fails, and Update runs it again.
type World struct {
	db    *Database
	freed *sync.Cond
	held  map[any]*itx
	waits map[*itx]*itx
	// Again has a transaction fail at its commit, and run again.
	Again func() bool
	// Views has transactions that only read see several moments, too, and run again. Otherwise they have one.
	Views bool
	// NoLocks has searches lock nothing that they find, as where an engine has no such locks.
	NoLocks bool
	// Step, AfterEnd and beforeCommit are for tests of one interleaving.
	Step         chan bool
	AfterEnd     func()
	beforeCommit func()
	// Deadlocks and Runs count.
	Deadlocks, Runs int
}

// NewWorld returns the world of db.
func NewWorld(db *Database) *World {
	return &World{db: db, freed: sync.NewCond(&db.mu), held: map[any]*itx{}, waits: map[*itx]*itx{}, Step: make(chan bool)}
}

// BeforeCommit has the next transaction that commits run fn first.
func (w *World) BeforeCommit(fn func()) { w.beforeCommit = fn }

// Interleaved is a driver in a World.
type Interleaved struct {
	Driver
	*World
}

type hookKey struct{}

// WithHook has before run before each call of the transactions of ctx. It may make other calls on the database.
func WithHook(ctx context.Context, before func(call string)) context.Context {
	return context.WithValue(ctx, hookKey{}, before)
}

var errDeadlock = errors.New("deadlock")

// itx is a transaction in a World. rows, notes and entries are its own versions; nil is deleted.
type itx struct {
	*World
	inner   *tx
	state   driver.State
	rows    map[outmill.WorkItemID]*stored
	notes   map[noteKey]*driver.Note
	entries map[entryKey]*driver.Entry
	bumped  *driver.Generations
	locks   []any
	// over says that the last Apply has come: a driver may have committed with it.
	over bool
}

var errOver = errors.New("a call came behind Changes.Last")

type (
	rowLock  outmill.WorkItemID
	bumpLock struct{}
)

func (i Interleaved) View(ctx context.Context, begin driver.Begin, fn func(driver.Tx) error) error {
	if i.Views {
		return i.Update(ctx, begin, fn)
	}
	if before, ok := ctx.Value(hookKey{}).(func(string)); ok {
		before("View")
	}
	return i.Driver.View(ctx, begin, fn)
}

func (i Interleaved) Update(ctx context.Context, _ driver.Begin, fn func(driver.Tx) error) error {
	for range 1000 {
		t, err := i.once(ctx, fn)
		if err == nil {
			t.inner.Committed()
		}
		if !errors.Is(err, errDeadlock) {
			return err
		}
		runtime.Gosched()
	}
	return errDeadlock
}

func (i Interleaved) once(ctx context.Context, fn func(driver.Tx) error) (*itx, error) {
	t, err := i.begin(ctx)
	if err != nil {
		return nil, err
	}
	done := false
	defer func() {
		if !done { // fn panicked
			t.end(false)
		}
	}()
	if err = fn(t); err == nil {
		err = ctx.Err()
	}
	if err == nil && i.Again != nil && i.Again() {
		err = errDeadlock
	}
	if fn := i.beforeCommit; fn != nil {
		i.beforeCommit = nil
		fn()
	}
	done = true
	t.end(err == nil)
	if i.AfterEnd != nil {
		i.AfterEnd()
	}
	return t, err
}

func (i Interleaved) begin(ctx context.Context) (*itx, error) {
	i.mu().Lock()
	defer i.mu().Unlock()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if !i.db.made {
		return nil, fmt.Errorf("%w: call Ensure first", outmill.ErrSchemaMissing)
	}
	i.Runs++
	t := &itx{
		World: i.World, inner: &tx{Database: i.db, now: i.db.now()},
		rows: map[outmill.WorkItemID]*stored{}, notes: map[noteKey]*driver.Note{}, entries: map[entryKey]*driver.Entry{},
	}
	t.state = t.inner.State()
	t.state.Serial = false
	return t, nil
}

func (w *World) mu() *sync.Mutex { return &w.db.mu }

// Within appends in the caller's transaction. It waits for transactions that take the same keys.
func (i Interleaved) Within(ctx context.Context, caller any, fn func(driver.Tx) error) error {
	return i.Driver.Within(ctx, caller, func(t driver.Tx) error { return fn(within{t, i.World}) })
}

type within struct {
	driver.Tx
	*World
}

// free waits until no transaction of the World has locked one of the entries.
func (t within) free(entries ...driver.Entry) {
	for _, e := range entries {
		for t.held[keyOf(e)] != nil {
			caller := t.Tx.(*tx).caller
			caller.turn()
			t.freed.Wait()
			caller.turn()
		}
	}
}

func (t within) Take(ctx context.Context, entries ...driver.Entry) ([]bool, error) {
	t.free(entries...)
	return t.Tx.Take(ctx, entries...)
}

func (t within) Put(ctx context.Context, entries ...driver.Entry) error {
	t.free(entries...)
	return t.Tx.Put(ctx, entries...)
}

func (t within) Add(ctx context.Context, wait time.Duration, e driver.Entry) (bool, error) {
	t.free(e)
	return t.Tx.Add(ctx, wait, e)
}

func (t within) Entries(ctx context.Context, lock bool, keys ...driver.Entry) ([]driver.Entry, error) {
	if lock {
		t.free(keys...)
	}
	return t.Tx.Entries(ctx, lock, keys...)
}

func (t within) Delete(ctx context.Context, entries ...driver.Entry) error {
	t.free(entries...)
	return t.Tx.Delete(ctx, entries...)
}

// end commits or rolls back.
func (t *itx) end(commit bool) {
	t.mu().Lock()
	defer t.mu().Unlock()
	if commit {
		t.install()
	}
	for _, key := range t.locks {
		delete(t.held, key)
	}
	t.freed.Broadcast()
}

// install puts the versions of t into the database, and returns what takes them out again.
func (t *itx) install() (restore func()) {
	var undo []func()
	theirs := map[outmill.WorkItemID]*stored{}
	for id, mine := range t.rows {
		theirs[id] = t.db.byID[id]
		t.db.put(id, mine)
	}
	undo = append(undo, func() {
		for id, s := range theirs {
			t.db.put(id, s)
		}
	})
	undo = append(undo, installMap(t.db.notes, t.notes), installMap(t.db.entries, t.entries))
	if t.bumped != nil {
		was := t.db.Generations
		t.db.Generations = *t.bumped
		undo = append(undo, func() { t.db.Generations = was })
	}
	return func() {
		for _, fn := range slices.Backward(undo) {
			fn()
		}
	}
}

func installMap[K comparable, V any](into, mine map[K]*V) func() {
	was := map[K]*V{}
	for key, v := range mine {
		was[key] = into[key]
		putIn(into, key, v)
	}
	return func() {
		for key, v := range was {
			putIn(into, key, v)
		}
	}
}

// step runs fn as one statement: alone, with the versions of t.
func (t *itx) step(ctx context.Context, call string, lock func() error, fn func() error) error {
	if before, ok := ctx.Value(hookKey{}).(func(string)); ok {
		before(call)
	} else if rand.IntN(3) == 0 {
		for range rand.IntN(20) {
			runtime.Gosched()
		}
	}
	t.mu().Lock()
	defer t.mu().Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if t.over {
		return errOver
	}
	if lock != nil {
		if err := lock(); err != nil {
			return err
		}
	}
	restore := t.install()
	defer func() { restore() }()
	return fn()
}

// lock waits for a lock. The database is locked.
func (t *itx) lock(key any) error {
	for {
		holder := t.held[key]
		switch holder {
		case t:
			return nil
		case nil:
			t.held[key] = t
			t.locks = append(t.locks, key)
			return nil
		}
		for other := holder; other != nil; other = t.waits[other] {
			if other == t {
				t.Deadlocks++
				return errDeadlock
			}
		}
		t.waits[t] = holder
		t.freed.Wait()
		delete(t.waits, t)
	}
}

// Waiting reports whether a transaction waits for a lock of another one.
func (w *World) Waiting() bool {
	w.mu().Lock()
	defer w.mu().Unlock()
	return len(w.waits) > 0
}

// rest lets others run between two locks of one statement.
func (t *itx) rest() {
	if rand.IntN(2) == 0 {
		t.mu().Unlock()
		runtime.Gosched()
		t.mu().Lock()
	}
}

// own has t write the row, which it has locked.
func (t *itx) own(id outmill.WorkItemID) {
	if _, known := t.rows[id]; known {
		return
	}
	t.rows[id] = t.db.byID[id]
}

func (t *itx) lockRows(ids []outmill.WorkItemID) error {
	for _, id := range ids {
		if t.db.byID[id] == nil && t.rows[id] == nil {
			continue
		}
		if err := t.lock(rowLock(id)); err != nil {
			return err
		}
		t.rest()
	}
	for _, id := range ids {
		if t.held[rowLock(id)] == t {
			t.own(id)
		}
	}
	return nil
}

func (t *itx) ownNote(key noteKey) {
	if _, known := t.notes[key]; known {
		return
	}
	t.notes[key] = t.db.notes[key]
}

func (t *itx) hasNote(key noteKey) bool {
	if mine, known := t.notes[key]; known {
		return mine != nil
	}
	_, known := t.db.notes[key]
	return known
}

func (t *itx) lockNotes(always bool, keys ...noteKey) error {
	for _, key := range keys {
		if !always && !t.hasNote(key) {
			continue
		}
		if err := t.lock(key); err != nil {
			return err
		}
		t.ownNote(key)
		t.rest()
	}
	return nil
}

// keep takes over the versions after fn has changed them.
func (t *itx) keep() {
	for id := range t.rows {
		t.rows[id] = t.db.byID[id]
	}
	for key := range t.notes {
		t.notes[key] = t.db.notes[key]
	}
	for key := range t.entries {
		t.entries[key] = t.db.entries[key]
	}
	t.inner.undo = nil
}
