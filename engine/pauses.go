package engine

import (
	"context"
	"fmt"
	"slices"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// pauseKind is the kind of the entries of pauses. Made is when the pause was made, Value a storedPause, and the
// key a hash of the scope. The number of a pause is the generation of the pauses that it made.
//
// Claims hold the paused rows that they meet: see pausedFree and decide. So Pause and Resume write two rows
// each, whatever the number of records is.
const pauseKind = "pause"

type storedPause struct {
	Scope      roles.PauseScope
	Number     int64
	By, Reason string
}

func pauseKey(s roles.PauseScope) string { return hashed(s.Group, s.Topic, s.Key, s.TenantID) }

// readPauses has the pauses of the transaction's State.
func (t *tx) readPauses(ctx context.Context) error {
	known := t.e.pauses.load()
	if known != nil && known.Generation() == t.State().Pauses {
		t.pauses = known
		return nil
	}
	t.e.busy.forget()
	return t.scanPauses(ctx, known, t.State().Pauses)
}

// lockPauses lets one transaction at a time change the pauses, reads those that there are now, and returns the
// generation.
func (t *tx) lockPauses(ctx context.Context) (int64, error) {
	now, err := t.Bump(ctx, false, false)
	if err != nil || now.Pauses == t.pauses.Generation() {
		return now.Pauses, err
	}
	return now.Pauses, t.scanPauses(ctx, t.pauses, now.Pauses)
}

// scanPauses reads the pauses in place of those known, also where their generation is smaller: then the database was restored.
func (t *tx) scanPauses(ctx context.Context, known *roles.PauseList, generation int64) error {
	entries, err := t.Scan(ctx, pauseKind, "")
	if err != nil {
		return err
	}
	list := make([]roles.PauseInfo, len(entries))
	for i, entry := range entries {
		p, err := valueAs[storedPause](entry)
		if err != nil {
			return fmt.Errorf("%w: delete its entry, and pause again", err)
		}
		list[i] = roles.PauseInfo{PauseScope: p.Scope, Number: p.Number, At: entry.Made.Of(), By: p.By, Reason: p.Reason}
	}
	t.pauses = roles.NewPauseList(generation, list)
	t.e.pauses.renew(known, t.pauses)
	return nil
}

// Pause stops the deliveries of the scope. See roles.Pauses.
func (e *Engine) Pause(ctx context.Context, scope roles.PauseScope, by, reason string) error {
	return e.checked(storekit.CheckPause(scope, by, reason), e.update)(ctx, "pause", func(ctx context.Context, t *tx) error {
		generation, err := t.lockPauses(ctx)
		if err != nil {
			return err
		}
		made := roles.PauseInfo{PauseScope: scope, Number: generation + 1, At: t.now.Of(), By: by, Reason: reason}
		if was := t.pauseOf(scope); was != nil {
			made.Number, made.At = was.Number, was.At
		} else if len(t.pauses.All()) >= roles.MaxPauses {
			return roles.ErrTooManyPauses
		}
		entry := driver.Entry{Kind: pauseKind, Key: pauseKey(scope), Made: driver.Time(made.At.UnixMicro())}
		if err := t.putAs(ctx, entry, storedPause{scope, made.Number, by, reason}); err != nil {
			return err
		}
		return t.changePauses(ctx, append(t.pausesBut(scope), made))
	})
}

// pausesBut returns a copy of the pauses without that of the scope.
func (t *tx) pausesBut(scope roles.PauseScope) []roles.PauseInfo {
	return slices.DeleteFunc(slices.Clone(t.pauses.All()), func(p roles.PauseInfo) bool { return p.PauseScope == scope })
}

// changePauses raises the generation. After the commit the engine knows the new list, so that a thousand pauses in
// a row do not read a thousand entries each.
func (t *tx) changePauses(ctx context.Context, list []roles.PauseInfo) error {
	now, err := t.Bump(ctx, false, true)
	if err != nil {
		return err
	}
	t.OnCommit(func() {
		t.e.busy.forget()
		t.e.pauses.keep(roles.NewPauseList(now.Pauses, list))
	})
	return nil
}

// pauseOf returns the pause of exactly this scope, or nil.
func (t *tx) pauseOf(scope roles.PauseScope) *roles.PauseInfo {
	for _, p := range t.pauses.All() {
		if p.PauseScope == scope {
			return &p
		}
	}
	return nil
}

// Resume ends the pause of the scope. See roles.Pauses.
func (e *Engine) Resume(ctx context.Context, scope roles.PauseScope) (bool, error) {
	update := e.checked(storekit.CheckPauseScope(scope), e.update)
	ended, err := valueOf(ctx, update, "resume", func(ctx context.Context, t *tx) (bool, error) {
		if _, err := t.lockPauses(ctx); err != nil || t.pauseOf(scope) == nil {
			return false, err
		}
		if err := t.Delete(ctx, driver.Entry{Kind: pauseKind, Key: pauseKey(scope)}); err != nil {
			return false, err
		}
		return true, t.changePauses(ctx, t.pausesBut(scope))
	})
	if ended {
		e.wake()
	}
	return ended, err
}

// Paused returns the pauses. See roles.Pauses.
func (e *Engine) Paused(ctx context.Context) ([]roles.PauseInfo, error) {
	return valueOf(ctx, e.view, "list pauses", func(_ context.Context, t *tx) ([]roles.PauseInfo, error) {
		return slices.Concat(t.pauses.All()), nil
	})
}

// LastPauses returns the pauses as the store last read them. See roles.Pauses.
func (e *Engine) LastPauses() *roles.PauseList { return e.pauses.load() }
