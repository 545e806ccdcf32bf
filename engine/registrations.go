package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

// registrationKind is the kind of the entries of registrations. At is the end of a registration, Made when the
// group last registered, Value a storedRegistration, and the key that of the group and of a hash of the topics.
const registrationKind = "registration"

type storedRegistration struct {
	Include, Exclude []string
	// Takes is the generation of the registrations in which this one began to take what waits for a first
	// group; 0 is not yet: it holds. The one with the smallest number is first.
	Takes int64 `json:",omitempty"`
}

func registrationKey(reg outmill.Registration) string {
	selection := slices.Concat([]string{"include"}, reg.Topics.Include, []string{"exclude"}, reg.Topics.Exclude)
	return joined(reg.Group, hashed(append(selection, fmt.Sprint(len(reg.Topics.Include)))...))
}

// registrations returns the registrations in the order in which they began to take.
func (t *tx) registrations(ctx context.Context) ([]storekit.StoredRegistration, error) {
	entries, err := t.Scan(ctx, registrationKind, "")
	if err != nil {
		return nil, err
	}
	type numbered struct {
		takes int64
		storekit.StoredRegistration
	}
	list := make([]numbered, 0, len(entries))
	for _, entry := range entries {
		s, bad := valueAs[storedRegistration](entry)
		if bad != nil {
			err = errors.Join(err, fmt.Errorf("%w: drop its group and register it again", bad))
			continue
		}
		group, _ := parts(entry.Key)
		list = append(list, numbered{cmp.Or(s.Takes, math.MaxInt64), storekit.StoredRegistration{
			Group: group, Topics: outmill.Topics{Include: s.Include, Exclude: s.Exclude},
			SeenAt: entry.Made.Of(), ExpiresAt: entry.At.Of(), Holding: s.Takes == 0,
		}})
	}
	slices.SortStableFunc(list, func(a, b numbered) int { return cmp.Compare(a.takes, b.takes) })
	return mapped(list, func(r numbered) storekit.StoredRegistration { return r.StoredRegistration }), err
}

// routing returns the registrations as this transaction sees them.
func (t *tx) routing(ctx context.Context) (*storekit.RoutingTable, error) {
	known := t.e.routes.load()
	if known != nil && known.Generation == t.State().Routes {
		return known, nil
	}
	registrations, err := t.registrations(ctx)
	if err != nil {
		return nil, err
	}
	table := &storekit.RoutingTable{Generation: t.State().Routes, Registrations: registrations}
	t.e.routes.renew(known, table)
	return table, nil
}

// lockRoutes lets one transaction at a time change the registrations, or do what depends on them.
func (t *tx) lockRoutes(ctx context.Context) error {
	_, err := t.Bump(ctx, false, false)
	return err
}

// lockedRoutes locks the registrations, and returns those that there are.
func (t *tx) lockedRoutes(ctx context.Context) (*storekit.RoutingTable, error) {
	if err := t.lockRoutes(ctx); err != nil {
		return nil, err
	}
	registrations, err := t.registrations(ctx)
	return &storekit.RoutingTable{Registrations: registrations}, err
}

// bumpRoutes makes the change of the registrations known.
func (t *tx) bumpRoutes(ctx context.Context) error {
	_, err := t.Bump(ctx, true, false)
	return err
}

// RegisterGroup makes groups readers of topics. See outmill.Queue. The registrations are made in one
// transaction, and what waited is adopted in further ones.
func (e *Engine) RegisterGroup(ctx context.Context, regs ...outmill.Registration) error {
	const operation = "register group"
	regs = storekit.WithGroups(regs)
	if err := storekit.CheckRegistrations(regs); err != nil || len(regs) == 0 {
		return e.explain(ctx, operation, errors.Join(err, e.life.Usable(ctx)))
	}
	stopped, regs := storekit.Stopped(regs)
	var unrouted bool
	err := e.update(ctx, operation, func(ctx context.Context, t *tx) error {
		if err := t.stopWorkers(ctx, stopped); err != nil || len(regs) == 0 {
			return err
		}
		unrouted = t.State().Unrouted
		err := t.lockRoutes(ctx)
		for _, reg := range regs {
			if err == nil {
				err = t.register(ctx, reg)
			}
		}
		return err
	})
	if err != nil || !unrouted {
		return err
	}
	selects := func(topic string) bool {
		return slices.ContainsFunc(regs, func(reg outmill.Registration) bool { return !reg.Hold && reg.Topics.Match(topic) })
	}
	adopted, err := e.adopt(ctx, operation, selects)
	if adopted > 0 {
		e.wake()
	}
	return err
}

// register makes or renews a registration.
func (t *tx) register(ctx context.Context, reg outmill.Registration) error {
	if err := t.seeWorker(ctx, reg); err != nil {
		return err
	}
	entry := driver.Entry{Kind: registrationKind, Key: registrationKey(reg), Made: t.now}
	if reg.TTL > 0 {
		entry.At = t.after(reg.TTL)
	}
	stored := storedRegistration{Include: reg.Topics.Include, Exclude: reg.Topics.Exclude}
	known, err := t.entry(ctx, false, registrationKind, entry.Key)
	if err != nil {
		return err
	}
	if known != nil {
		if known.At == 0 {
			entry.At = 0
		}
		// One that cannot be read begins again.
		was, _ := valueAs[storedRegistration](*known)
		stored.Takes = was.Takes
	}
	begins := stored.Takes == 0 && !reg.Hold
	if begins || known == nil {
		now, err := t.Bump(ctx, true, false)
		if err != nil {
			return err
		}
		if begins {
			stored.Takes = now.Routes
		}
		event := driver.Event{What: driver.Begins, Group: reg.Group, Topics: reg.Topics, Takes: begins}
		if known != nil {
			event.What = driver.Takes
		}
		if _, err := t.registered(ctx, event); err != nil {
			return err
		}
	}
	return t.putAs(ctx, entry, stored)
}

// registered tells a driver with a log what happens to registrations.
func (t *tx) registered(ctx context.Context, events ...driver.Event) (driver.Left, error) {
	if log, ok := t.Tx.(driver.Historian); ok && len(events) > 0 {
		return log.Registered(ctx, events...)
	}
	return driver.Left{}, nil
}

// registrationsEnd tells it of the end of registrations, which are of one group or of several.
func (t *tx) registrationsEnd(ctx context.Context, what driver.What, entries []driver.Entry) (driver.Left, error) {
	var events []driver.Event
	for _, entry := range entries {
		// One that cannot be read began as another one, of which the driver knows no more either.
		if s, bad := valueAs[storedRegistration](entry); bad == nil {
			topics := outmill.Topics{Include: s.Include, Exclude: s.Exclude}
			group, _ := parts(entry.Key)
			events = append(events, driver.Event{What: what, Group: group, Topics: topics})
		}
	}
	return t.registered(ctx, events...)
}

// adopt gives rows of the selected topics that wait for a first group to it, in steps.
func (e *Engine) adopt(ctx context.Context, operation string, selects func(topic string) bool) (adopted int, err error) {
	for more := true; more && err == nil; {
		var n int
		n, err = valueOf(ctx, e.update, operation, func(ctx context.Context, t *tx) (n int, err error) {
			lines, err := t.LinesOf(ctx, "")
			if err != nil {
				return 0, err
			}
			n, more, err = t.adopt(ctx, slices.DeleteFunc(lines, func(line driver.Line) bool { return !selects(line.Topic) })...)
			return n, err
		})
		adopted += n
	}
	return adopted, err
}

// adopt gives rows of the lines that wait for a first group to the group whose registration is the first that
// takes, and reports whether more may be left. It holds the registrations, because one that is dropped in
// between must get nothing.
func (t *tx) adopt(ctx context.Context, lines ...driver.Line) (adopted int, more bool, err error) {
	if len(lines) == 0 {
		return 0, false, nil
	}
	routes, err := t.lockedRoutes(ctx)
	if err != nil {
		return 0, false, err
	}
	most := t.e.config.AtOnce.Step()
	for _, line := range lines {
		first, takes := routes.First(line.Topic)
		if !takes {
			continue
		}
		n, err := t.Adopt(ctx, line, first.Group, most-adopted)
		if adopted += n; err != nil || adopted == most {
			return adopted, true, err
		}
	}
	return adopted, false, nil
}
