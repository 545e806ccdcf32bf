package drivertest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/engine/memdriver"
)

// fewWalks are made at least.
const fewWalks = 3

// longestWalk is much more than a walk takes on a busy machine. A call that waits for a lock that nobody gives back ends with it.
const longestWalk = 5 * time.Minute

// walking is how long further ones are begun.
func walking() time.Duration {
	if os.Getenv("OUTMILL_TEST_ALL") != "" {
		return time.Minute
	}
	return 5 * time.Second
}

// Run compares the driver that open returns with package memdriver. open returns an empty database with its schema,
// and closes it by t.Cleanup. The flag -rapid.checks says how many walks there are. Without it, they are as many as 5 seconds have room
// for, or a minute with OUTMILL_TEST_ALL=1: 3 at least and 100 at most.
func Run(t *testing.T, open func(t *testing.T) driver.DB) {
	t.Helper()
	db := open(t)
	locksEnd(t, db)
	checks := flag.Lookup("rapid.checks")
	limited := checks.Value.String() == checks.DefValue
	walks, failed, began := 0, false, time.Now()
	rapid.Check(t, func(rt *rapid.T) {
		// Once a walk has failed, rapid makes more of them to find a short one.
		if limited && !failed && walks >= fewWalks && time.Since(began) > walking() {
			return
		}
		walks++
		passed := false
		defer func() { failed = failed || !passed }()
		ctx, cancel := context.WithTimeout(t.Context(), longestWalk)
		defer cancel()
		if err := compare(ctx, rt, db); err != nil {
			rt.Fatal(err)
		}
		passed = true
	})
	t.Logf("%d walks", walks)
}

// locksEnd shows that each kind of transaction gives back what a claim without an order has locked, also where it fails.
func locksEnd(t *testing.T, db driver.DB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longestWalk)
	defer cancel()
	search := driver.Search{By: driver.ByDue, Line: driver.Line{Group: "locks", Topic: "end"}, Limit: 1, Free: true}
	for _, end := range []error{nil, errRollback} {
		look := func(tx driver.Tx) error {
			_, err := tx.Rows(ctx, search)
			return errors.Join(err, end)
		}
		for range 2 {
			require.ErrorIs(t, db.View(ctx, driver.Begin{}, look), end)
			require.ErrorIs(t, db.Update(ctx, driver.Begin{}, look), end)
			require.ErrorIs(t, db.Transact(ctx, func(ctx context.Context) error {
				tx, err := db.TxOf(ctx)
				if err != nil {
					return err
				}
				return db.Within(ctx, tx, look)
			}), end)
		}
	}
}

// compare is one walk. It empties the database first.
func compare(ctx context.Context, rt *rapid.T, db driver.DB) error {
	memory := memdriver.Driver{Database: memdriver.New()}
	if err := memory.Ensure(ctx); err != nil {
		return err
	}
	w := &walk{
		T: rt, ctx: ctx, want: &side{db: memory}, have: &side{db: db}, nth: map[outmill.WorkItemID]int64{},
		heads: map[driver.Line]map[int64]bool{},
	}
	if err := w.empty(); err != nil {
		return fmt.Errorf("the database is not empty, and cannot be emptied: %w", err)
	}
	err := db.View(ctx, driver.Begin{}, func(t driver.Tx) error {
		w.serial = t.State().Serial
		return nil
	})
	if err != nil {
		return err
	}
	for range rapid.IntRange(10, 30).Draw(rt, "transactions") {
		step := rapid.SampledFrom([]func() error{w.update, w.update, w.update, w.view, w.view, w.caller}).Draw(rt, "kind")
		if err := step(); err != nil {
			return err
		}
		if err := w.compareAll(); err != nil {
			return err
		}
	}
	return nil
}

// walk is one comparison.
type walk struct {
	*rapid.T
	ctx        context.Context
	want, have *side
	// serial says that the driver is Serial: see driver.Changes.Rows and driver.KeyState.Due.
	serial bool
	// ids are those of all rows that were inserted, in their order, and nth is the place of each, from 1. A Seq of a
	// result, or of an operation, is that place, because drivers choose different Seqs.
	ids []outmill.WorkItemID
	nth map[outmill.WorkItemID]int64
	// base is the time at the beginning, and times counts the times that were made from it.
	base  driver.Time
	times driver.Time
	// rows are those that exist, before an operation is drawn, and orphans says that some are held although there are no notes. heads are
	// the Heads of notes: each is used once.
	rows    []driver.Row
	orphans bool
	heads   map[driver.Line]map[int64]bool
	// last are the names of the operations of the last transaction.
	last []string
}

// side is one of the two drivers.
type side struct {
	db  driver.DB
	seq map[outmill.WorkItemID]int64
	// committed counts the calls of OnCommit's functions.
	committed int
	// first is what the generations were at the beginning, and state the last state that was compared.
	first driver.Generations
	state driver.State
}

// operation is one call of a transaction. It returns what the call returned, in a form that is the same for both.
type operation struct {
	name string
	run  func(s *side, t driver.Tx) (any, error)
	// begin is the call as the first read of a transaction.
	begin func(s *side) driver.Begin
}

// result is what an operation did.
type result struct {
	name   string
	result any
	failed bool
}

var errRollback = errors.New("rolled back")

// update compares an Update of some operations, which may be rolled back.
func (w *walk) update() error {
	return w.transaction(w.anyOperation, func(s *side, begin driver.Begin, fn func(driver.Tx) error) error {
		begin.Durable = w.chance(2)
		return s.db.Update(w.ctx, begin, fn)
	})
}

// view compares a View of some reads.
func (w *walk) view() error {
	return w.transaction(w.read, func(s *side, begin driver.Begin, fn func(driver.Tx) error) error {
		return s.db.View(w.ctx, begin, fn)
	})
}

// caller compares operations within a transaction of a caller.
func (w *walk) caller() error {
	late := w.chance(2)
	return w.transaction(w.callersOperation, func(s *side, _ driver.Begin, fn func(driver.Tx) error) error {
		return s.db.Transact(w.ctx, func(ctx context.Context) error {
			tx, err := s.db.TxOf(ctx)
			if err != nil {
				return err
			}
			if tx == nil {
				return errors.New("TxOf does not find the transaction of Transact")
			}
			var end error
			err = s.db.Within(ctx, tx, func(t driver.Tx) error {
				err := fn(t)
				if late && errors.Is(err, errRollback) {
					end, err = err, nil
				}
				return err
			})
			return errors.Join(err, end)
		})
	})
}

// transaction draws operations while the reference runs them, and then has the driver run the same.
func (w *walk) transaction(draw func() operation, in func(s *side, begin driver.Begin, fn func(driver.Tx) error) error) error {
	var list []operation
	var want, have []result
	count, rollback := rapid.IntRange(1, 5).Draw(w.T, "operations"), rapid.IntRange(0, 5).Draw(w.T, "rollback") == 0
	perform := func(s *side, t driver.Tx, results *[]result, next func(i int) operation) error {
		t.OnCommit(func() { s.committed++ })
		for i := range count {
			op := next(i)
			if op.name == "" {
				break
			}
			r, err := op.run(s, t)
			if *results = append(*results, result{op.name, r, err != nil}); err != nil {
				return err
			}
		}
		if rollback {
			return errRollback
		}
		return nil
	}
	known := len(w.ids)
	wantErr := in(w.want, driver.Begin{}, func(t driver.Tx) error {
		want = nil
		return perform(w.want, t, &want, func(int) operation {
			var err error
			if w.rows, err = w.find(w.want, t, w.ids[:known]); err != nil {
				return operation{}
			}
			w.orphans = !t.State().Notes && slices.ContainsFunc(w.rows, func(r driver.Row) bool { return r.Stage == driver.Held })
			op := draw()
			list = append(list, op)
			return op
		})
	})
	var begin driver.Begin
	if len(list) > 0 && list[0].begin != nil && w.chance(2) {
		begin = list[0].begin(w.have)
	}
	haveErr := in(w.have, begin, func(t driver.Tx) error {
		have = nil
		return perform(w.have, t, &have, func(i int) operation {
			if i >= len(list) {
				return operation{}
			}
			return list[i]
		})
	})
	if haveErr != nil {
		// Another row may get the Seq of one that was never committed.
		for _, id := range w.ids[known:] {
			delete(w.want.seq, id)
			delete(w.have.seq, id)
		}
	}
	w.last = names(want)
	for i := range want {
		if i >= len(have) || !reflect.DeepEqual(want[i], have[i]) {
			return difference(want[i].name, want, have, haveErr)
		}
	}
	if (wantErr == nil) != (haveErr == nil) || errors.Is(wantErr, errRollback) != errors.Is(haveErr, errRollback) {
		return fmt.Errorf("the end of a transaction of %v: want the error %w, have the error %w", w.last, wantErr, haveErr)
	}
	if w.want.committed != w.have.committed {
		return fmt.Errorf("OnCommit has run %d functions instead of %d, after a transaction of %v", w.have.committed, w.want.committed, w.last)
	}
	return nil
}

func names(results []result) (list []string) {
	for _, r := range results {
		list = append(list, r.name)
	}
	return list
}

// quiet is a TestingT that only keeps the message.
type quiet struct{ text string }

func (q *quiet) Errorf(format string, args ...any) { q.text = fmt.Sprintf(format, args...) }

func difference(name string, want, have any, err error) error {
	var q quiet
	assert.Equal(&q, want, have)
	if err != nil && !errors.Is(err, errRollback) {
		return fmt.Errorf("%s: the driver differs from memory (error %w):\n%s", name, err, q.text)
	}
	return fmt.Errorf("%s: the driver differs from memory:\n%s", name, q.text)
}

// compareAll compares all that is stored.
func (w *walk) compareAll() error {
	list := append(w.dump(), w.dumpEntries()...)
	var results [2][]result
	for i, s := range []*side{w.want, w.have} {
		err := s.db.View(w.ctx, driver.Begin{}, func(t driver.Tx) error {
			results[i] = nil
			for _, op := range list {
				r, err := op.run(s, t)
				if err != nil {
					return fmt.Errorf("%s: %w", op.name, err)
				}
				results[i] = append(results[i], result{op.name, r, false})
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for i, want := range results[0] {
		if have := results[1][i]; !reflect.DeepEqual(want, have) {
			return difference(fmt.Sprintf("stored after a transaction of %v: %s", w.last, want.name), want.result, have.result, nil)
		}
	}
	if denied := denies(w.want.state, w.have.state); denied != "" {
		return fmt.Errorf("stored after a transaction of %v: State says that there are no %s", w.last, denied)
	}
	return w.compareContents()
}

// denies returns what there is, and the state of a driver says is not there. A state may say that there is something for no reason.
func denies(want, have driver.State) string {
	switch {
	case want.Notes && !have.Notes:
		return "notes"
	case want.Paused && !have.Paused:
		return "notes of pauses"
	case want.Unrouted && !have.Unrouted:
		return "rows that wait for a first group"
	}
	return ""
}

func (w *walk) chance(n int) bool { return rapid.IntRange(1, n).Draw(w.T, "chance") == 1 }
