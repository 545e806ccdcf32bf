package engine

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

// Stats counts records. See outmill.Inspector.
func (e *Engine) Stats(ctx context.Context, limit int) ([]outmill.TopicStats, error) {
	limit, err := storekit.CheckStats(limit)
	return valueOf(ctx, e.checked(err, e.view), "stats", func(ctx context.Context, t *tx) (list []outmill.TopicStats, err error) {
		lines, err := t.allLines(ctx)
		if err != nil {
			return nil, err
		}
		for some := range slices.Chunk(lines, max(1, min(linesAtOnce, countedAtOnce/limit))) {
			if list, err = t.addStats(ctx, list, some, limit); err != nil {
				return nil, err
			}
		}
		slices.SortFunc(list, func(a, b outmill.TopicStats) int {
			return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Topic, b.Topic))
		})
		return list, err
	})
}

const (
	// linesAtOnce is how many lines one call of a driver searches.
	linesAtOnce = 100
	// countedAtOnce is how many rows of one kind a call of Count may find: a driver may read them to count them.
	countedAtOnce = 1 << 18
)

// allLines are the lines that may have records, by group, topic and part.
func (t *tx) allLines(ctx context.Context) ([]driver.Line, error) {
	groups, err := t.groupsWithRecords(ctx)
	if err != nil {
		return nil, err
	}
	return t.LinesOf(ctx, groups...)
}

// groupsWithRecords returns the groups that may have records: those that are registered or were, and "".
func (t *tx) groupsWithRecords(ctx context.Context) ([]string, error) {
	registrations, err := t.registrations(ctx)
	if err != nil {
		return nil, err
	}
	ended, err := t.Scan(ctx, endedKind, "")
	if err != nil {
		return nil, err
	}
	groups := slices.Concat([]string{""}, mapped(registrations, func(r storekit.StoredRegistration) string { return r.Group }),
		mapped(ended, func(n driver.Entry) string { return n.Key }))
	slices.Sort(groups)
	return slices.Compact(groups), nil
}

// statsSearches find the rows that Stats counts, each kind by its own index.
var statsSearches = []driver.Search{
	{By: driver.ByStage, Stage: driver.Processed}, {By: driver.ByStage, Stage: driver.Dead}, {By: driver.ByLater, Stage: driver.Leased},
	{By: driver.ByStage, Stage: driver.Ready}, {By: driver.ByStage, Stage: driver.Held}, {By: driver.ByComing},
	{By: driver.ByLater, Stage: driver.Waiting}, {By: driver.ByLater, Stage: driver.Delayed},
}

// addStats counts the records of some lines. Parts of one topic follow each other, and are counted together.
func (t *tx) addStats(ctx context.Context, list []outmill.TopicStats, lines []driver.Line, limit int) ([]outmill.TopicStats, error) {
	var searches []driver.Search
	for _, line := range lines {
		for _, s := range statsSearches {
			s.Line, s.Limit = line, limit
			searches = append(searches, s)
		}
	}
	counted, err := t.Count(ctx, searches...)
	if err != nil {
		return nil, err
	}
	for i, line := range lines {
		if n := len(list); n == 0 || list[n-1].Group != line.Group || list[n-1].Topic != line.Topic {
			list = append(list, outmill.TopicStats{Group: line.Group, Topic: line.Topic})
		}
		if err := t.addLine(ctx, &list[len(list)-1], line, limit, counted[i*len(statsSearches):]); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// addLine adds what the searches have counted in a line.
func (t *tx) addLine(ctx context.Context, s *outmill.TopicStats, line driver.Line, limit int, counted []driver.Counted) (err error) {
	s.Processed, s.Dead = min(s.Processed+counted[0].N, limit), min(s.Dead+counted[1].N, limit)
	s.Leased = min(s.Leased+counted[2].N, limit)
	var oldest driver.Time
	// A record whose lease has ended is due, whether somebody has reaped it or not.
	for _, c := range counted[3:len(statsSearches)] {
		s.Pending, s.Delayed = min(s.Pending+c.N, limit), min(s.Delayed+c.Later, limit)
		if c.Oldest != 0 && c.Oldest <= t.now && (oldest == 0 || c.Oldest < oldest) {
			oldest = c.Oldest
		}
	}
	if t.pauses.Topic(line.Group, line.Topic) {
		return nil
	}
	if oldest != 0 && t.pauses.HasParts() {
		if oldest, err = t.oldestUnpaused(ctx, line); err != nil {
			return err
		}
	}
	if at := oldest.Of(); s.OldestDue.IsZero() || oldest != 0 && at.Before(s.OldestDue) {
		s.OldestDue = at
	}
	return nil
}

// oldestUnpaused is the first due time of the rows that have been due longest and that no pause of a key or
// tenant stops.
func (t *tx) oldestUnpaused(ctx context.Context, line driver.Line) (oldest driver.Time, err error) {
	rows, err := t.Rows(ctx, mapped([]driver.Index{driver.ByDue, driver.ByKeyed, driver.ByPaused}, func(by driver.Index) driver.Search {
		return driver.Search{By: by, Line: line, Limit: scanLimit}
	})...)
	for _, r := range rows {
		due := dueOf(r)
		if t.pauses.Of(r.Group, r.Topic, r.Key, r.Tenant) == 0 && !expired(&r, t.now) && (oldest == 0 || due < oldest) {
			oldest = due
		}
	}
	return oldest, err
}
