package memstore

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

const (
	workersFor = 24 * time.Hour
	mostNames  = 1000
	// noteFor is how long a group whose registration ended is still checked.
	noteFor = 24 * time.Hour
)

// registration is one selection of topics of a group.
type registration struct {
	group        string
	topics       outmill.Topics
	seen, expiry time.Time
	holding      bool
}

type worker struct {
	group, name string
	seen        time.Time
	problems    map[string]string
	failing     []outmill.FailingCall
	handling    []outmill.Handling
	stopped     bool
	reads       []outmill.Reading
}

func sameTopics(a, b outmill.Topics) bool {
	return slices.Equal(a.Include, b.Include) && slices.Equal(a.Exclude, b.Exclude)
}

// readers returns the groups that read a topic, sorted.
func (d *Database) readers(topic string) []string {
	var groups []string
	for _, r := range d.registrations {
		if r.topics.Match(topic) && !slices.Contains(groups, r.group) {
			groups = append(groups, r.group)
		}
	}
	slices.Sort(groups)
	return groups
}

// known reports whether the group has a registration, or had one that has ended.
func (d *Database) known(group string) bool {
	return !d.ended[group].IsZero() || slices.ContainsFunc(d.registrations, func(r registration) bool { return r.group == group })
}

// RegisterGroup registers groups. See outmill.Queue.
func (s *Store) RegisterGroup(ctx context.Context, regs ...outmill.Registration) error {
	if err := storekit.CheckRegistrations(regs); err != nil {
		return failed("register", err)
	}
	err := s.do(ctx, "register", func(d *Database, now time.Time) error {
		stopped, others := storekit.Stopped(storekit.WithGroups(regs))
		for _, reg := range stopped {
			if slices.ContainsFunc(d.workers, func(w worker) bool { return w.group == reg.Group && w.name == reg.Worker }) {
				d.noteWorker(reg, now)
			}
		}
		for _, reg := range others {
			holds := d.register(reg, now)
			d.noteWorker(reg, now)
			if !holds {
				d.adopt(reg)
			}
		}
		return nil
	})
	if err == nil && len(regs) > 0 {
		s.wake()
	}
	return err
}

// register reports whether the registration holds.
func (d *Database) register(reg outmill.Registration, now time.Time) (holds bool) {
	i := slices.IndexFunc(d.registrations, func(r registration) bool { return r.group == reg.Group && sameTopics(r.topics, reg.Topics) })
	known := i >= 0
	if !known {
		topics := outmill.Topics{Include: slices.Clone(reg.Topics.Include), Exclude: slices.Clone(reg.Topics.Exclude)}
		d.registrations = append(d.registrations, registration{group: reg.Group, topics: topics, holding: true})
		i = len(d.registrations) - 1
	}
	r := &d.registrations[i]
	permanent := known && r.expiry.IsZero()
	r.seen, r.expiry = now, time.Time{}
	if reg.TTL > 0 && !permanent {
		r.expiry = now.Add(reg.TTL)
	}
	r.holding = r.holding && reg.Hold
	return r.holding
}

// noteWorker stores the name of a worker that registered the group, and deletes old names.
func (d *Database) noteWorker(reg outmill.Registration, now time.Time) {
	d.workers = slices.DeleteFunc(d.workers, func(w worker) bool {
		return w.group == reg.Group && (w.name == reg.Worker || now.Sub(w.seen) > workersFor)
	})
	if reg.Worker != "" {
		d.workers = append(d.workers, worker{reg.Group, reg.Worker, now, problemsOf(reg), slices.Clone(reg.Failing),
			slices.Clone(reg.Handling), reg.Stopped, slices.Clone(reg.Reads)})
	}
	surplus := len(d.workersOf(reg.Group)) - mostNames
	d.workers = slices.DeleteFunc(d.workers, func(w worker) bool {
		surplus--
		return w.group == reg.Group && surplus >= 0
	})
}

// problemsOf returns nil instead of an empty map.
func problemsOf(reg outmill.Registration) map[string]string {
	if len(reg.Problems) == 0 {
		return nil
	}
	return maps.Clone(reg.Problems)
}

// workersOf returns the workers of a group, the most recently seen first.
func (d *Database) workersOf(group string) []outmill.WorkerInfo {
	var list []outmill.WorkerInfo
	for _, w := range d.workers {
		if w.group == group {
			list = append(list, outmill.WorkerInfo{
				Name: w.name, SeenAt: w.seen, Problems: maps.Clone(w.problems), Failing: slices.Clone(w.failing),
				Handling: slices.Clone(w.handling), Stopped: w.stopped, Reads: slices.Clone(w.reads),
			})
		}
	}
	slices.Reverse(list)
	return list
}

// adopt gives the group the records that wait for a first group.
func (d *Database) adopt(reg outmill.Registration) {
	match := reg.Topics.Matcher()
	d.each(func(r *row) {
		if r.Group == "" && r.Status == outmill.StatusPending && match(r.Topic) {
			r.Group = reg.Group
		}
	})
}

// Groups lists the groups. See outmill.Inspector.
func (s *Store) Groups(ctx context.Context) (list []outmill.GroupInfo, err error) {
	err = s.do(ctx, "groups", func(d *Database, _ time.Time) error {
		for _, name := range d.groupNames() {
			list = append(list, d.group(name))
		}
		storekit.NamePauses(list, d.pauses.All())
		return nil
	})
	return list, err
}

// groupNames returns the names of the groups that have registrations or records.
func (d *Database) groupNames() []string {
	var names []string
	for _, r := range d.registrations {
		names = append(names, r.group)
	}
	d.each(func(r *row) {
		if r.Group != "" && !d.ended[r.Group].IsZero() {
			names = append(names, r.Group)
		}
	})
	slices.Sort(names)
	return slices.Compact(names)
}

func (d *Database) group(name string) outmill.GroupInfo {
	info := outmill.GroupInfo{Group: name, Workers: d.workersOf(name)}
	for _, r := range d.registrations {
		if r.group == name {
			info.Registrations = append(info.Registrations, outmill.RegistrationInfo{Topics: r.topics, SeenAt: r.seen, ExpiresAt: r.expiry,
				Holding: r.holding})
			if r.seen.After(info.SeenAt) {
				info.SeenAt = r.seen
			}
		}
	}
	if len(info.Registrations) == 0 {
		info.EndedAt = d.ended[name]
	}
	return info
}

// ExpireRegistrations ends registrations. See outmill.Janitor.
func (s *Store) ExpireRegistrations(ctx context.Context, limit int) (registrations, records int, err error) {
	records, err = s.count(ctx, "expire registrations", limit, func(d *Database, now time.Time) int {
		registrations = d.endRegistrations(limit, now)
		return d.sweep(limit, now)
	})
	return registrations, records, err
}

// sweeps reports whether the group has ended and is not being dropped.
func (d *Database) sweeps(group string) bool {
	_, dropping := d.dropping[group]
	return !d.ended[group].IsZero() && !dropping
}

func (d *Database) endRegistrations(limit int, now time.Time) (n int) {
	d.registrations = slices.DeleteFunc(d.registrations, func(r registration) bool {
		over := n < limit && !r.expiry.IsZero() && !r.expiry.After(now)
		if over {
			n++
			d.ended[r.group] = now
			delete(d.dropping, r.group)
		}
		return over
	})
	return n
}

// sweep deletes the records of an ended group that none of its registrations selects any
// more.
func (d *Database) sweep(limit int, now time.Time) int {
	removed := d.removeUpTo(limit, func(r *row) bool {
		return d.sweeps(r.Group) && r.undelivered(now) && !slices.Contains(d.readers(r.Topic), r.Group)
	})
	left := map[string]bool{}
	d.each(func(r *row) { left[r.Group] = true })
	maps.DeleteFunc(d.ended, func(group string, at time.Time) bool {
		return d.sweeps(group) && !left[group] && now.Sub(at) > noteFor
	})
	return removed
}
