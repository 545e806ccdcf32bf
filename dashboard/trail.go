package dashboard

import (
	"time"

	"github.com/outmill/outmill"
)

const (
	// trailPoints and trailStep are the length of a trend: 10 minutes.
	trailPoints = 120
	trailStep   = 5 * time.Second
)

// point is one look at a topic of a group.
type point struct {
	at time.Time
	// waiting are the pending records; full says that the count ended at its limit.
	waiting, dead int
	full          bool
	lag           time.Duration
	// processed are those that the store retains, and manyProcessed says that they reach the limit.
	processed     int
	manyProcessed bool
}

func pointOf(s outmill.TopicStats, now time.Time, limit int) point {
	return point{
		at: now, waiting: s.Pending, dead: s.Dead, full: s.Pending >= limit, lag: lagOf(s, now),
		processed: s.Processed, manyProcessed: s.Processed >= limit,
	}
}

// lagOf is how long the oldest due record has been due.
func lagOf(s outmill.TopicStats, now time.Time) time.Duration {
	if s.OldestDue.IsZero() {
		return 0
	}
	return max(0, now.Sub(s.OldestDue))
}

// trail has the points of the last minutes, one for each trailStep, and the last one.
type trail struct {
	kept []point
	last point
}

func (t *trail) add(p point) {
	t.last = p
	if n := len(t.kept); n > 0 && p.at.Sub(t.kept[n-1].at) < trailStep {
		return
	}
	// Points of an earlier visit are not next to those of now.
	first := 0
	for first < len(t.kept) && p.at.Sub(t.kept[first].at) > trailPoints*trailStep {
		first++
	}
	t.kept = append(t.kept[:0:0], t.kept[max(first, len(t.kept)-trailPoints+1):]...)
	t.kept = append(t.kept, p)
}

func (t *trail) points() []point {
	points := append([]point(nil), t.kept...)
	if n := len(points); n == 0 || points[n-1].at.Before(t.last.at) {
		points = append(points, t.last)
	}
	return points
}

// idle reports whether the trail has nothing to show: the topic has been empty all the time.
func (t *trail) idle() bool {
	for _, p := range t.kept {
		if p.waiting > 0 || p.dead > 0 {
			return false
		}
	}
	return t.last.waiting == 0 && t.last.dead == 0
}
