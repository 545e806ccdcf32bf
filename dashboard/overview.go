package dashboard

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// maxLines is the most lines of the table of topics; the rest is found by the filter.
const maxLines = 100

// noGroup stands for the group of records that no group reads yet.
const noGroup = "(no group)"

// lateAfter is the lag from which on a topic is marked.
const lateAfter = 5 * time.Minute

// line is a topic of a group.
type line struct {
	Store, Group, Topic string
	// ShownGroup is Group, or noGroup.
	ShownGroup                            string
	Due, Delayed, Leased, Dead, Processed string
	HasDead, Late, Paused                 bool
	Lag, Change, Passed                   string
	Trend                                 chart
}

// overview is the table of topics with the sums above it.
type overview struct {
	Due, Delayed, Leased, Dead, Lag string
	HasDead, Late                   bool
	Lines                           []line
	// More is how many lines the table leaves out.
	More   int
	Filter string
	// Many says that the store is made of several.
	Many bool
	// Limit is where counts end, and AtLimit says that one did.
	Limit   int
	AtLimit bool
	Fresh   freshness
}

// freshness says how old the counts are.
type freshness struct {
	At time.Time
	// Old says that the last look has failed, and Partly that only some stores answered.
	Old, Partly bool
	// Problem is why.
	Problem string
}

func (c *call) freshness(n counts) freshness {
	f := freshness{At: n.at}
	if n.err != nil {
		f.Partly = n.at.Equal(n.tried)
		f.Old = !f.Partly
		f.Problem = c.asProblem(n.err).text
	}
	return f
}

func overviewPage(c *call) error {
	filter := c.r.URL.Query().Get("q")
	return c.renderLive("overview", "Overview", c.overview(c.ctx, filter), "q", filter)
}

func (c *call) overview(ctx context.Context, filter string) overview {
	n := c.counts.look(ctx)
	rows := c.chosen(n.rows)
	o := overview{Filter: filter, Limit: n.limit, Many: c.isMany() && c.tenant == "", Fresh: c.freshness(n)}
	o.sum(rows, n.at, n.limit)
	for _, row := range rows {
		if !strings.Contains(row.Topic, filter) && !strings.Contains(row.Group, filter) && !strings.Contains(row.Store, filter) {
			continue
		}
		if len(o.Lines) == maxLines {
			o.More++
			continue
		}
		o.Lines = append(o.Lines, c.line(row, n))
	}
	return o
}

// chosen are the rows of the chosen tenant, those with dead or late records first where they
// would not all fit.
func (c *call) chosen(rows []outmill.TopicStats) []outmill.TopicStats {
	if c.tenant != "" {
		rows = slices.DeleteFunc(slices.Clone(rows), func(s outmill.TopicStats) bool { return s.Store != c.tenant })
	}
	if len(rows) > maxLines {
		rows = slices.Clone(rows)
		slices.SortStableFunc(rows, func(a, b outmill.TopicStats) int {
			return cmp.Or(cmp.Compare(b.Dead, a.Dead), cmp.Compare(b.Pending, a.Pending))
		})
	}
	return rows
}

func (o *overview) sum(rows []outmill.TopicStats, now time.Time, limit int) {
	var due, delayed, leased, dead total
	var oldest time.Duration
	for _, s := range rows {
		due.add(max(0, s.Pending-s.Delayed), s.Pending >= limit)
		delayed.add(s.Delayed, s.Delayed >= limit)
		leased.add(s.Leased, s.Leased >= limit)
		dead.add(s.Dead, s.Dead >= limit)
		oldest = max(oldest, lagOf(s, now))
	}
	o.Due, o.Delayed, o.Leased, o.Dead = due.String(), delayed.String(), leased.String(), dead.String()
	o.AtLimit = due.atLeast || delayed.atLeast || leased.atLeast || dead.atLeast
	o.HasDead, o.Late, o.Lag = dead.n > 0, oldest >= lateAfter, age(oldest)
}

// total is a sum of counts.
type total struct {
	n       int
	atLeast bool
}

func (t *total) add(n int, atLeast bool) { t.n, t.atLeast = t.n+n, t.atLeast || atLeast }

func (t *total) String() string {
	if t.atLeast {
		return number(t.n) + "+"
	}
	return number(t.n)
}

func (c *call) line(s outmill.TopicStats, n counts) line {
	limit := n.limit
	l := line{
		Store: s.Store, Group: s.Group, ShownGroup: cmp.Or(s.Group, noGroup), Topic: s.Topic,
		Due: due(s, limit), Delayed: upTo(s.Delayed, limit), Leased: upTo(s.Leased, limit), Dead: upTo(s.Dead, limit),
		Processed: upTo(s.Processed, limit), HasDead: s.Dead > 0, Lag: "–", Change: "–", Passed: "–",
	}
	if lag := lagOf(s, n.at); !s.OldestDue.IsZero() {
		l.Lag, l.Late = age(lag), lag >= lateAfter
	}
	l.Paused = slices.ContainsFunc(n.pauses, func(p roles.PauseInfo) bool { return pausesAll(p, s) })
	points := c.counts.trendOf(seriesOf(s))
	if perMinute, known := changePerMinute(points); known {
		l.Change = signed(perMinute)
	}
	if perMinute, known := processedPerMinute(points); known {
		l.Passed = number(perMinute)
	}
	l.Trend = trend(points, limit)
	return l
}

// trend draws the number of waiting records, or the lag where counts have ended at the limit.
func trend(points []point, limit int) chart {
	if slices.ContainsFunc(points, func(p point) bool { return p.full }) {
		return lag().small(points)
	}
	return waiting(limit).small(points)
}

// pausesAll reports whether the pause stops all records of the topic and group.
func pausesAll(p roles.PauseInfo, s outmill.TopicStats) bool {
	same := func(want, have string) bool { return want == "" || want == have }
	return p.Key == "" && p.TenantID == "" && same(p.Group, s.Group) && same(p.Topic, s.Topic) && same(p.Store, s.Store)
}

// due is how many pending records are due. Where the count of pending records ends at the limit,
// this is a lower bound, or unknown if all that were counted may be delayed.
func due(s outmill.TopicStats, limit int) string {
	switch {
	case s.Pending < limit:
		return number(max(0, s.Pending-s.Delayed))
	case s.Delayed >= limit:
		return "?"
	}
	return number(limit-s.Delayed) + "+"
}

func signed(n int) string {
	if n > 0 {
		return "+" + number(n)
	}
	return number(n)
}
