package suite

import (
	"slices"

	"github.com/outmill/outmill"
)

// drop drops a group.
func (m *model) drop(name string) (dropped outmill.Dropped) {
	m.Groups = slices.DeleteFunc(m.Groups, func(g *modelGroup) bool { return g.Name == name })
	for _, it := range m.Items {
		open := it.Status == outmill.StatusPending || it.Status == outmill.StatusLeased
		if it.Group == name && open && len(m.readers(it.topic)) == 0 {
			it.giveBack()
			dropped.GivenBack++
		}
	}
	dropped.Deleted = m.Remove(func(it *Item) bool { return it.Group == name })
	return dropped
}

// giveBack makes the item as if it were appended without a group.
func (it *Item) giveBack() {
	it.Group, it.Status, it.Next, it.dueCall = "", outmill.StatusPending, it.due, it.appendedCall
	it.Attempts, it.Expiries, it.renewed, it.owner, it.leaseUntil = 0, 0, true, outmill.OwnerToken{}, 0
}

// readers returns the groups that get records of the topic.
func (m *model) readers(topic string) []string {
	var list []string
	for _, g := range m.Groups {
		for _, topics := range g.topics {
			if topics.Match(topic) {
				list = append(list, g.Name)
				break
			}
		}
	}
	return list
}

func (m *model) register(name string, topics outmill.Topics) {
	var g *modelGroup
	for _, other := range m.Groups {
		if other.Name == name {
			g = other
		}
	}
	if g == nil {
		g = &modelGroup{Name: name}
		m.Groups = append(m.Groups, g)
	}
	g.topics = append(g.topics, topics)
	for _, it := range m.Items {
		if it.Group == "" && it.Status == outmill.StatusPending && topics.Match(it.topic) {
			it.Group = name
		}
	}
}
