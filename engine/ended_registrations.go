package engine

import (
	"context"
	"slices"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

// endedKind is the kind of the entries of groups of which a registration ended: they are swept until nothing
// is left that they do not read. At is the time of the next sweep, Made that of the last end, the key the
// group, and Value says that it has no records.
const (
	endedKind    = "ended"
	hasNoRecords = "empty"
)

// endedGroups are the groups of which a registration ended and that have records.
func (t *tx) endedGroups(ctx context.Context) (ended []storekit.EndedGroup, err error) {
	entries, err := t.Scan(ctx, endedKind, "")
	for _, n := range entries {
		if n.Value != hasNoRecords {
			ended = append(ended, storekit.EndedGroup{Group: n.Key, At: n.Made.Of()})
		}
	}
	return ended, err
}

// ExpireRegistrations ends registrations. See outmill.Janitor.
func (e *Engine) ExpireRegistrations(ctx context.Context, limit int) (registrations, records int, err error) {
	const operation = "expire registrations"
	gone := 0
	registrations, records, err = storekit.RegistrationExpiry{
		End: func(ctx context.Context, limit int) (int, error) {
			return e.count(ctx, operation, limit, func(ctx context.Context, t *tx) (ended int, err error) {
				ended, gone, err = t.endRegistrations(ctx, limit)
				// What a log has for the ended registrations alone goes with them in one step, whatever its size.
				gone = min(gone, limit)
				return ended, err
			})
		},
		Noted: func(ctx context.Context, limit int) ([]string, error) {
			return valueOf(ctx, e.view, operation, func(ctx context.Context, t *tx) ([]string, error) {
				entries, err := t.Old(ctx, endedKind, t.now, limit)
				return mapped(entries, func(n driver.Entry) string { return n.Key }), err
			})
		},
		Sweep: func(ctx context.Context, group string, limit int) (int, error) {
			if limit -= gone; limit <= 0 {
				return 0, nil // the next call goes on
			}
			return e.count(ctx, operation, limit, func(ctx context.Context, t *tx) (int, error) { return t.sweep(ctx, group, limit) })
		},
	}.Expire(ctx, limit)
	return registrations, records + gone, err
}

// endRegistrations removes registrations whose end has passed, and notes their groups. gone is what a log had for these alone.
func (t *tx) endRegistrations(ctx context.Context, limit int) (ended, gone int, err error) {
	if err := t.lockRoutes(ctx); err != nil {
		return 0, 0, err
	}
	over, err := t.Old(ctx, registrationKind, t.now, limit)
	if err != nil || len(over) == 0 {
		return 0, 0, err
	}
	for _, entry := range over {
		group, _ := parts(entry.Key)
		if err := t.Put(ctx, driver.Entry{Kind: endedKind, Key: group, At: t.now, Made: t.now}); err != nil {
			return 0, 0, err
		}
	}
	left, err := t.registrationsEnd(ctx, driver.Ends, over)
	if err == nil {
		err = t.Delete(ctx, over...)
	}
	if err == nil {
		err = t.bumpRoutes(ctx)
	}
	return len(over), left.Gone, err
}

// sweep deletes undelivered records of topics that the group does not read. If it has found all, it sets the
// time of the next sweep: the next round, if leases have not ended.
func (t *tx) sweep(ctx context.Context, group string, limit int) (deleted int, err error) {
	// No registration may come before the records are deleted that it would keep.
	routes, err := t.lockedRoutes(ctx)
	if err != nil {
		return 0, err
	}
	left, err := t.registered(ctx, driver.Event{What: driver.Swept, Group: group, Limit: limit})
	if deleted = left.Gone; err != nil || left.More || deleted == limit {
		return deleted, err
	}
	lines, err := t.LinesOf(ctx, group)
	if err != nil {
		return 0, err
	}
	leased := false
	unread := slices.DeleteFunc(lines, func(line driver.Line) bool { return len(routes.Unread(group, []string{line.Topic})) == 0 })
	for i, line := range unread {
		n, more, err := t.removeLine(ctx, line, undelivered, false, limit-deleted)
		if err != nil {
			return 0, err
		}
		if deleted += n; more || i == topicsAtOnce && deleted > 0 {
			// The next call goes on.
			return deleted, nil
		}
		left, err := t.Count(ctx, driver.Search{By: driver.ByLater, Line: line, Stage: driver.Leased, Limit: 1})
		if err != nil {
			return 0, err
		}
		leased = leased || left[0].N > 0
	}
	if lines, err = t.LinesOf(ctx, group); err != nil {
		return 0, err
	}
	return deleted, t.swept(ctx, group, routes.Has(group), leased, len(lines) == 0)
}

// swept sets the time of the next sweep, or ends the sweeps of the group.
func (t *tx) swept(ctx context.Context, group string, registered, leased, empty bool) error {
	ended, err := t.entry(ctx, false, endedKind, group)
	if err != nil || ended == nil {
		return err
	}
	if !registered && !leased {
		workers, err := t.Scan(ctx, workerKind, joined(group, ""))
		if err != nil {
			return err
		}
		if err := t.Delete(ctx, workers...); err != nil {
			return err
		}
	}
	was := *ended
	ended.Value, ended.At = "", t.now
	switch over := ended.Made.After(storekit.SweepFor) <= t.now; {
	case leased:
		return t.Put(ctx, *ended)
	case over && (empty || registered):
		return t.Delete(ctx, was)
	case empty:
		ended.Value = hasNoRecords
	}
	ended.At = t.after(storekit.SweepEvery)
	return t.Put(ctx, *ended)
}
