package memstore

import (
	"context"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// DropGroup removes a group, and gives back or deletes its records. See outmill.Inspector. If the group registers
// during the call, it keeps what it still has.
func (s *Store) DropGroup(ctx context.Context, group string) (outmill.Dropped, error) {
	const operation = "drop group"
	if err := storekit.CheckGroup(group); err != nil {
		return outmill.Dropped{}, failed(operation, err)
	}
	g := &drop{s, operation, storekit.GroupOf(group)}
	dropped, err := storekit.GroupDrop{Begin: g.begin, Topics: g.topics, GiveBack: g.giveBack, Delete: g.delete,
		DeleteSettled: g.deleteSettled, End: g.end}.Run(ctx)
	if dropped.GivenBack > 0 {
		s.wake()
	}
	return dropped, err
}

// drop has the steps of a drop.
type drop struct {
	s                *Store
	operation, group string
}

func (g *drop) begin(ctx context.Context) (others storekit.Selections, err error) {
	err = g.s.do(ctx, g.operation, func(d *Database, now time.Time) error {
		noted, goesOn := d.dropping[g.group]
		registered := slices.ContainsFunc(d.registrations, func(r registration) bool { return r.group == g.group })
		if others = noted; registered || !goesOn {
			others = d.others(g.group)
		}
		d.dropping[g.group], d.ended[g.group] = others, now
		d.registrations = slices.DeleteFunc(d.registrations, func(r registration) bool { return r.group == g.group })
		d.workers = slices.DeleteFunc(d.workers, func(w worker) bool { return w.group == g.group })
		return nil
	})
	return others, err
}

func (d *Database) others(group string) storekit.Selections {
	var table storekit.RoutingTable
	for _, r := range d.registrations {
		table.Registrations = append(table.Registrations, storekit.StoredRegistration{Group: r.group, Topics: r.topics})
	}
	return table.Others(group)
}

func (g *drop) topics(ctx context.Context) (topics []string, err error) {
	err = g.s.do(ctx, g.operation, func(d *Database, _ time.Time) error {
		for _, r := range d.dropped(g.group, -1, unsettled) {
			topics = append(topics, r.Topic)
		}
		return nil
	})
	slices.Sort(topics)
	return slices.Compact(topics), err
}

func unsettled(r *row) bool {
	return r.Status == outmill.StatusPending || r.Status == outmill.StatusLeased
}

// dropped returns up to limit rows of the group that match; negative is no limit. It returns none if the group
// has registered again.
func (d *Database) dropped(group string, limit int, match func(r *row) bool) (found []*row) {
	if slices.ContainsFunc(d.registrations, func(r registration) bool { return r.group == group }) {
		return nil
	}
	d.each(func(r *row) {
		if r.Group == group && match(r) && len(found) != limit {
			found = append(found, r)
		}
	})
	return found
}

// each calls change for a bounded number of rows.
func (g *drop) each(ctx context.Context, match func(r *row) bool, change func(d *Database, r *row)) (done int, more bool, err error) {
	err = g.s.do(ctx, g.operation, func(d *Database, _ time.Time) error {
		found := d.dropped(g.group, storekit.DropAtOnce, match)
		for _, r := range found {
			change(d, r)
		}
		done = len(found)
		return nil
	})
	return done, done == storekit.DropAtOnce, err
}

func (g *drop) giveBack(ctx context.Context, topic string) (done int, more bool, err error) {
	return g.each(ctx, func(r *row) bool { return r.Topic == topic && unsettled(r) }, func(_ *Database, r *row) { r.giveBack() })
}

func (g *drop) delete(ctx context.Context, topic string) (done int, more bool, err error) {
	return g.each(ctx, func(r *row) bool { return r.Topic == topic && unsettled(r) }, (*Database).remove)
}

func (g *drop) deleteSettled(ctx context.Context) (done int, more bool, err error) {
	return g.each(ctx, func(r *row) bool { return !unsettled(r) }, (*Database).remove)
}

func (g *drop) end(ctx context.Context) error {
	return g.s.do(ctx, g.operation, func(d *Database, _ time.Time) error {
		if _, dropping := d.dropping[g.group]; dropping {
			delete(d.dropping, g.group)
			delete(d.ended, g.group)
		}
		return nil
	})
}

// giveBack makes the row as if it were appended without a group.
func (r *row) giveBack() {
	r.open(outmill.StatusPending)
	r.Group, r.Attempts, r.Expiries, r.behind = "", 0, 0, false
	if r.WaitsFor.IsZero() {
		r.next = r.DueAt
	}
}
