// Package routing tells which groups read a topic. Stores share it.
package routing

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/outmill/outmill"
)

// Registration is one selection of topics that a group has registered.
type Registration struct {
	Group  string
	Topics outmill.Topics
	SeenAt time.Time
	// ExpiresAt is when it ends; zero: never.
	ExpiresAt time.Time
}

// Worker is a worker's name that registered a group.
type Worker struct {
	Group  string
	Name   string
	SeenAt time.Time
}

// Ended is a group of which a registration has ended, and that has records.
type Ended struct {
	Group string
	At    time.Time
}

// Table holds the registrations of one generation: a store counts it up
// whenever they change. It is not changed after it was made.
type Table struct {
	Generation    int64
	Registrations []Registration
}

// Of returns the groups of the topic, sorted, each once.
func (t *Table) Of(topic string) []string {
	var groups []string
	for _, r := range t.Registrations {
		if r.Topics.Match(topic) && !slices.Contains(groups, r.Group) {
			groups = append(groups, r.Group)
		}
	}
	slices.Sort(groups)
	return groups
}

// First returns the first of the registrations that selects the topic.
func (t *Table) First(topic string) (first Registration, found bool) {
	for _, r := range t.Registrations {
		if r.Topics.Match(topic) {
			return r, true
		}
	}
	return Registration{}, false
}

// Infos describes the groups for an Inspector, sorted by name.
func (t *Table) Infos(workers []Worker, ended []Ended) []outmill.GroupInfo {
	infos := map[string]*outmill.GroupInfo{}
	of := func(group string) *outmill.GroupInfo {
		if infos[group] == nil {
			infos[group] = &outmill.GroupInfo{Group: group}
		}
		return infos[group]
	}
	for _, r := range t.Registrations {
		info := of(r.Group)
		info.Registrations = append(info.Registrations, outmill.RegistrationInfo{Topics: r.Topics, SeenAt: r.SeenAt, ExpiresAt: r.ExpiresAt})
		if r.SeenAt.After(info.SeenAt) {
			info.SeenAt = r.SeenAt
		}
	}
	for _, e := range ended {
		if infos[e.Group] == nil {
			of(e.Group).EndedAt = e.At
		}
	}
	for _, w := range workers {
		if info := infos[w.Group]; info != nil {
			info.Workers = append(info.Workers, outmill.WorkerInfo{Name: w.Name, SeenAt: w.SeenAt})
		}
	}
	var list []outmill.GroupInfo
	for _, name := range slices.Sorted(maps.Keys(infos)) {
		info := infos[name]
		slices.SortFunc(info.Workers, func(a, b outmill.WorkerInfo) int {
			return cmp.Or(b.SeenAt.Compare(a.SeenAt), cmp.Compare(a.Name, b.Name))
		})
		list = append(list, *info)
	}
	return list
}
