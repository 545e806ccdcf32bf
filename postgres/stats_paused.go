package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

const (
	// dueAtOnce is the number of records of each kind that are compared with the pauses.
	dueAtOnce = 1000
	// comparedAtOnce is how many topics of groups are compared in one round trip.
	comparedAtOnce = 20
)

// leaveOutPaused sets OldestDue of topics without the paused records. It needs further
// transactions only where a part of a topic is paused.
func (s *Store) leaveOutPaused(ctx context.Context, operation string, pauses *roles.PauseList, found []outmill.TopicStats,
	logged bool) error {
	var inPart []*outmill.TopicStats
	for i := range found {
		of := &found[i]
		switch {
		case of.OldestDue.IsZero():
		case pauses.Topic(of.Group, of.Topic):
			of.OldestDue = time.Time{}
		case hasParts(pauses, of):
			inPart = append(inPart, of)
		}
	}
	if len(inPart) == 0 {
		return nil
	}
	for some := range slices.Chunk(inPart, comparedAtOnce) {
		lines := make([]groupTopic, len(some))
		for i, of := range some {
			lines[i] = groupTopic{of.Group, of.Topic}
		}
		found, err := s.firstWaiting(ctx, operation, lines, dueAtOnce, logged)
		if err != nil {
			return err
		}
		for i, of := range some {
			of.OldestDue = found[i].OldestUnpaused(func(r storekit.WaitingRecord) bool {
				return pauses.Of(of.Group, of.Topic, r.Key, r.TenantID) != 0
			})
		}
	}
	return nil
}

// hasParts reports whether a key or a tenant is paused that may concern the topic.
func hasParts(pauses *roles.PauseList, of *outmill.TopicStats) bool {
	if !pauses.HasParts() {
		return false
	}
	for _, p := range pauses.All() {
		if (p.Key != "" || p.TenantID != "") && (p.Group == "" || p.Group == of.Group) && (p.Topic == "" || p.Topic == of.Topic) {
			return true
		}
	}
	return false
}
