package engine

import (
	"context"
	"errors"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// attempts is how often a step is tried again for the rows that it has lost. Each time somebody else has
// changed them since they were read, so more than a few times is a fault of the driver.
const attempts = 20

// errLost ends a call whose rows change all the time.
var errLost = errors.New("other calls change the same records all the time: repeat the call")

// tx is a transaction, with the changes that are not written yet.
type tx struct {
	driver.Tx
	e       *Engine
	now     driver.Time
	pauses  *roles.PauseList
	changes driver.Changes
	// callers says that the transaction is a caller's.
	callers bool
	// parks says that the transaction is a claim with KeyPark.
	parks bool
	// gone says what deleted rows count as for their steps, where that is not dead. moves are those of steps that are not counted yet:
	// the transaction locks steps and joins when it has written all its rows. hurries are the joins to look at after the commit.
	gone    map[outmill.WorkItemID]stepMove
	moves   map[string]stepMove
	hurries []outmill.JoinID
	// undelivered are the rows that were made dead because no reader can handle them.
	undelivered []driver.Row
}

// run is a driver's View, Update or Within for one call.
type run func(fn func(driver.Tx) error) error

// own is a run in a transaction that is not a caller's: begin is the View or the Update of the driver.
func (e *Engine) own(ctx context.Context, begin func(context.Context, driver.Begin, func(driver.Tx) error) error, how driver.Begin) run {
	return func(fn func(driver.Tx) error) error {
		if err := e.ready(ctx); err != nil {
			return err
		}
		return begin(ctx, how, fn)
	}
}

// do runs fn in a transaction, and writes what fn has changed.
func (e *Engine) do(ctx context.Context, operation string, run run, fn func(ctx context.Context, t *tx) error) error {
	if err := e.life.Usable(ctx); err != nil {
		return e.explain(ctx, operation, err)
	}
	var t *tx
	err := run(func(d driver.Tx) error {
		t = &tx{Tx: d, e: e, now: d.State().Now}
		if err := t.readPauses(ctx); err != nil {
			return err
		}
		if err := fn(ctx, t); err != nil {
			return err
		}
		if _, err := t.write(ctx); err != nil {
			return err
		}
		return t.countSteps(ctx)
	})
	if err != nil {
		return e.explain(ctx, operation, err)
	}
	for _, r := range t.undelivered {
		e.log.Undelivered(r.ID, r.Group, r.Topic, *r.Error)
	}
	if len(t.hurries) > 0 {
		e.hurryJoins(ctx, t.hurries)
	}
	return nil
}

func (e *Engine) view(ctx context.Context, operation string, fn func(ctx context.Context, t *tx) error) error {
	return e.do(ctx, operation, e.own(ctx, e.db.View, driver.Begin{}), fn)
}

// update is for what operators and registrations change: it is durable.
func (e *Engine) update(ctx context.Context, operation string, fn func(ctx context.Context, t *tx) error) error {
	return e.updateFrom(ctx, operation, driver.Begin{Durable: true}, fn)
}

// updateFrom is update, with the first read of fn.
func (e *Engine) updateFrom(ctx context.Context, operation string, begin driver.Begin, fn func(ctx context.Context, t *tx) error) error {
	return e.do(ctx, operation, e.own(ctx, e.db.Update, begin), fn)
}

// count is update for work on up to limit rows.
func (e *Engine) count(ctx context.Context, operation string, limit int, fn func(ctx context.Context, t *tx) (int, error)) (int, error) {
	return valueOf(ctx, e.checked(storekit.CheckLimit(limit), e.update), operation, fn)
}

// runner is a method such as view or update.
type runner func(ctx context.Context, operation string, fn func(ctx context.Context, t *tx) error) error

// checked returns a runner that runs nothing if a check has failed.
func (e *Engine) checked(failed error, run runner) runner {
	if failed == nil {
		return run
	}
	return func(ctx context.Context, operation string, _ func(ctx context.Context, t *tx) error) error {
		return e.explain(ctx, operation, failed)
	}
}

// valueOf runs fn in a transaction, and returns what fn has returned in the run that counts.
func valueOf[T any](ctx context.Context, run runner, operation string, fn func(ctx context.Context, t *tx) (T, error)) (T, error) {
	var value, none T
	err := run(ctx, operation, func(ctx context.Context, t *tx) (err error) {
		value, err = fn(ctx, t)
		return err
	})
	if err != nil {
		return none, err
	}
	return value, nil
}

// after returns the time d from now; now if d is not positive.
func (t *tx) after(d time.Duration) driver.Time { return t.now.After(d) }

// change changes a row, to be written later. A row that may block its key opens the key's note, so that
// the next claim looks at the key again. A row that cannot be decoded goes dead instead of becoming one that a claim
// takes, or has taken: alone, and as a Fail with the claim's policy.
func (t *tx) change(r driver.Row, how func(r *driver.Row)) {
	if blocks(&r) {
		t.open(r)
	}
	t.rewrite(r, func(r *driver.Row) {
		was := r.Stage
		how(r)
		if r.Broken != "" && r.Group != "" && was != driver.Dead && r.Stage < driver.Processed {
			kill(r, unreadableError(r.Broken))
			r.Parked = t.parks && r.Key != ""
		}
	})
}

// rewrite is change for a change that frees no key.
func (t *tx) rewrite(r driver.Row, how func(r *driver.Row)) {
	t.changes.Rows = append(t.changes.Rows, driver.Change{Was: r, Now: r})
	now := &t.changes.Rows[len(t.changes.Rows)-1].Now
	how(now)
	if !now.WaitsFor.IsZero() && (now.Stage == driver.Waiting || now.Stage == driver.Delayed) && now.Next > t.now {
		// The join may have been decided while the record was leased.
		t.hurry(now.WaitsFor)
	}
}

// remove deletes a row, later.
func (t *tx) remove(r driver.Row) {
	if blocks(&r) {
		t.open(r)
	}
	t.changes.Delete = append(t.changes.Delete, r)
}

// open opens the note that holds the row, and the note of its key. That of a pause stays as it is: whether a claim looks at it
// depends on the pause alone, and its Looks must not go back, because claims that lock no line hold rows under it.
func (t *tx) open(r driver.Row) {
	if !t.State().Notes {
		return
	}
	if _, paused := driver.ByPause(r.Under); r.Under != "" && !paused {
		t.changes.Open = append(t.changes.Open, driver.Note{Line: r.Line, Name: r.Under})
	}
	if name := driver.KeyNote(r.Key); r.Key != "" && r.Under != name {
		t.changes.Open = append(t.changes.Open, driver.Note{Line: r.Line, Name: name})
	}
}

// changeAll changes up to limit of the rows that find returns, and finds again for those that somebody else
// has changed since. It returns how many it has changed, and whether it has given up on some.
func (t *tx) changeAll(ctx context.Context, limit int, find func(ctx context.Context, limit int) ([]driver.Row, error),
	change func(r driver.Row)) (changed int, lost bool, err error) {
	for range attempts {
		if changed == limit {
			return changed, false, nil
		}
		rows, err := find(ctx, limit-changed)
		if err != nil || len(rows) == 0 {
			return changed, false, err
		}
		for _, r := range rows {
			change(r)
		}
		done, err := t.write(ctx)
		if err != nil {
			return changed, false, err
		}
		if changed += len(rows) - len(done.Lost); len(done.Lost) == 0 {
			return changed, false, nil
		}
	}
	return changed, true, nil
}

// searched is a find of changeAll. No row is found by two of the searches.
func (t *tx) searched(searches ...driver.Search) func(ctx context.Context, limit int) ([]driver.Row, error) {
	return func(ctx context.Context, limit int) ([]driver.Row, error) {
		for i := range searches {
			searches[i].Limit = limit
		}
		rows, err := t.Rows(ctx, searches...)
		return rows[:min(len(rows), limit)], err
	}
}

// write writes the changes.
func (t *tx) write(ctx context.Context) (driver.Applied, error) {
	c := t.changes
	t.changes = driver.Changes{}
	if c.None() {
		return driver.Applied{}, nil
	}
	return t.apply(ctx, c)
}

// apply writes changes. A row that is lost may still be held under its note. See stillHeld.
func (t *tx) apply(ctx context.Context, c driver.Changes) (driver.Applied, error) {
	inOrder(&c)
	steps := hasSteps(&c)
	c.Last = c.Last && !steps && len(t.moves) == 0
	done, err := t.Apply(ctx, c)
	if err == nil && steps {
		t.moveSteps(c, done.Lost)
	}
	t.noteUndelivered(c, done.Lost)
	if err != nil || len(done.Lost) == 0 {
		return done, err
	}
	if again := stillHeld(&c, done.Lost); !again.None() {
		inOrder(&again)
		_, err = t.Apply(ctx, again)
	}
	return done, err
}

func (t *tx) noteUndelivered(c driver.Changes, lost map[outmill.WorkItemID]bool) {
	for _, change := range c.Rows {
		r := change.Now
		if r.Stage == driver.Dead && change.Was.Stage != driver.Dead && !lost[r.ID] && r.Error != nil && storekit.EndedByClaim(*r.Error) {
			t.undelivered = append(t.undelivered, r)
		}
	}
}
