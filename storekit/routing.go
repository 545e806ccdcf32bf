package storekit

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/outmill/outmill"
)

// StoredRegistration is one selection of topics that a group has registered, as a store
// keeps it.
type StoredRegistration struct {
	Group  string
	Topics outmill.Topics
	SeenAt time.Time
	// ExpiresAt is the end of the registration; zero means that it never ends.
	ExpiresAt time.Time
	// Holding says that the registration does not take what waits for a first group.
	Holding bool
}

// StoredWorker is the name of a worker that registered a group, as a store keeps it.
type StoredWorker struct {
	Group  string
	Name   string
	SeenAt time.Time
	// Problems is the text that [EncodeProblems] made; "" is none.
	Problems string
}

// EndedGroup is a group of which a registration ended at At, and that still has records.
type EndedGroup struct {
	Group string
	At    time.Time
}

// RoutingTable knows the groups that read a topic. It holds the registrations of one
// generation; a store increases the generation whenever the registrations change. A table
// is immutable, so it is safe for concurrent use.
type RoutingTable struct {
	Generation    int64
	Registrations []StoredRegistration
}

// Of returns the groups of the topic, sorted, each once.
func (t *RoutingTable) Of(topic string) []string {
	var groups []string
	for _, r := range t.Registrations {
		if r.Topics.Match(topic) && !slices.Contains(groups, r.Group) {
			groups = append(groups, r.Group)
		}
	}
	slices.Sort(groups)
	return groups
}

// First returns the first of Registrations that selects the topic and does not hold: the group
// that gets what waits for a first group.
func (t *RoutingTable) First(topic string) (first StoredRegistration, found bool) {
	for _, r := range t.Registrations {
		if !r.Holding && r.Topics.Match(topic) {
			return r, true
		}
	}
	return StoredRegistration{}, false
}

// Infos describes the groups for an Inspector, sorted by name.
func (t *RoutingTable) Infos(workers []StoredWorker, ended []EndedGroup) []outmill.GroupInfo {
	infos := map[string]*outmill.GroupInfo{}
	of := func(group string) *outmill.GroupInfo {
		if infos[group] == nil {
			infos[group] = &outmill.GroupInfo{Group: group}
		}
		return infos[group]
	}
	for _, r := range t.Registrations {
		info := of(r.Group)
		info.Registrations = append(info.Registrations, outmill.RegistrationInfo{Topics: r.Topics, SeenAt: r.SeenAt, ExpiresAt: r.ExpiresAt,
			Holding: r.Holding})
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
			report := decodeProblems(w.Problems)
			info.Workers = append(info.Workers, outmill.WorkerInfo{
				Name: w.Name, SeenAt: w.SeenAt, Problems: report.Problems, Failing: report.Failing, Handling: report.Handling,
				Stopped: report.Stopped, Reads: report.Reads,
			})
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
