// Package routing tells which groups read a topic. Stores share it.
package routing

import (
	"slices"
	"time"

	"github.com/outmill/outmill"
)

// Registration is one selection of topics that a group has registered.
type Registration struct {
	Group  string
	Topics outmill.Topics
	SeenAt time.Time
}

// Info describes the registration for an Inspector.
func (r Registration) Info() outmill.RegistrationInfo {
	return outmill.RegistrationInfo{Topics: r.Topics, SeenAt: r.SeenAt}
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
func (t *Table) First(topic string) (group string, found bool) {
	for _, r := range t.Registrations {
		if r.Topics.Match(topic) {
			return r.Group, true
		}
	}
	return "", false
}

// Infos describes the groups for an Inspector, sorted by name.
func (t *Table) Infos() []outmill.GroupInfo {
	var infos []outmill.GroupInfo
	place := map[string]int{}
	for _, r := range t.Registrations {
		i, known := place[r.Group]
		if !known {
			i = len(infos)
			place[r.Group] = i
			infos = append(infos, outmill.GroupInfo{Group: r.Group})
		}
		infos[i].Registrations = append(infos[i].Registrations, r.Info())
		if r.SeenAt.After(infos[i].SeenAt) {
			infos[i].SeenAt = r.SeenAt
		}
	}
	slices.SortFunc(infos, func(a, b outmill.GroupInfo) int {
		if a.Group < b.Group {
			return -1
		}
		return 1
	})
	return infos
}
