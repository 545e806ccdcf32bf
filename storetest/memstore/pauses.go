package memstore

import (
	"context"
	"slices"
	"time"

	"github.com/outmill/outmill/storekit"
)

// Pause stops the deliveries of the scope. See storekit.Pauses.
func (s *Store) Pause(ctx context.Context, scope storekit.PauseScope, by, reason string) error {
	if err := storekit.CheckPause(scope, by, reason); err != nil {
		return failed("pause", err)
	}
	return s.do(ctx, "pause", func(d *Database, now time.Time) error { return d.pause(scope, by, reason, now) })
}

func (d *Database) pause(scope storekit.PauseScope, by, reason string, now time.Time) error {
	all := slices.Clone(d.pauses.All())
	i := slices.IndexFunc(all, func(p storekit.PauseInfo) bool { return p.PauseScope == scope })
	generation := d.pauses.Generation() + 1
	switch {
	case i >= 0:
		all[i].By, all[i].Reason = by, reason
	case len(all) >= storekit.MaxPauses:
		return storekit.ErrTooManyPauses
	default:
		all = append(all, storekit.PauseInfo{PauseScope: scope, Number: generation, At: now, By: by, Reason: reason})
	}
	d.pauses = storekit.NewPauseList(generation, all)
	return nil
}

// Resume ends the pause of the scope. See storekit.Pauses.
func (s *Store) Resume(ctx context.Context, scope storekit.PauseScope) (ended bool, err error) {
	if err := storekit.CheckPauseScope(scope); err != nil {
		return false, failed("resume", err)
	}
	err = s.do(ctx, "resume", func(d *Database, _ time.Time) error {
		left := slices.DeleteFunc(slices.Clone(d.pauses.All()), func(p storekit.PauseInfo) bool { return p.PauseScope == scope })
		if ended = len(left) < len(d.pauses.All()); ended {
			d.pauses = storekit.NewPauseList(d.pauses.Generation()+1, left)
		}
		return nil
	})
	if ended {
		s.wake()
	}
	return ended, err
}

// Paused returns the pauses. See storekit.Pauses.
func (s *Store) Paused(ctx context.Context) (pauses []storekit.PauseInfo, err error) {
	err = s.do(ctx, "list pauses", func(d *Database, _ time.Time) error {
		pauses = slices.Clone(d.pauses.All())
		return nil
	})
	return pauses, err
}

// LastPauses returns the pauses as a call of this store last saw them. See storekit.Pauses.
func (s *Store) LastPauses() *storekit.PauseList { return s.pauses.Load() }
