package storekit

import (
	"slices"

	"github.com/outmill/outmill"
)

// DropForecast says what a drop of a group would do, by the counts of Stats.
type DropForecast struct {
	// GivenBack counts the records that would wait for a first group.
	GivenBack int
	// Read counts records that would be deleted because another group reads their topic. Dead
	// and Processed would be deleted too.
	Read, Dead, Processed int
	// AtLeast says that a count has reached its limit, so there may be more of each.
	AtLeast bool
}

// Deleted is the sum of the records that would be deleted.
func (f DropForecast) Deleted() int { return f.Read + f.Dead + f.Processed }

// ForecastDrop says what a drop of the group would do. limit is that of the call of Stats. For stores that are made of several, it
// takes a group of one store as a reader in all of them.
func ForecastDrop(group string, groups []outmill.GroupInfo, stats []outmill.TopicStats, limit int) DropForecast {
	var others []outmill.Topics
	for _, g := range groups {
		if g.Group == group {
			continue
		}
		for _, r := range g.Registrations {
			others = append(others, r.Topics)
		}
	}
	var f DropForecast
	for _, t := range stats {
		if t.Group != group {
			continue
		}
		open := &f.GivenBack
		if slices.ContainsFunc(others, func(topics outmill.Topics) bool { return topics.Match(t.Topic) }) {
			open = &f.Read
		}
		*open += t.Pending + t.Leased
		f.Dead += t.Dead
		f.Processed += t.Processed
		f.AtLeast = f.AtLeast || slices.Max([]int{t.Pending, t.Leased, t.Dead, t.Processed}) >= limit
	}
	return f
}
