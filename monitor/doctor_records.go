package monitor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// mostOfAKind bounds the problems of one kind, so that a store of a thousand topics gives a
// report that can be read.
const mostOfAKind = 10

// tally is what a store has, by its own counts.
type tally struct {
	stats  []outmill.TopicStats
	groups []outmill.GroupInfo
	now    time.Time
}

func (d *doctor) records(ctx context.Context) error {
	// A store that is made of several returns what it has with the error of the others.
	stats, err := d.store.Stats(ctx, 0)
	if storekit.NoneAnswered(err) {
		return err
	}
	groups, groupsErr := d.store.Groups(ctx)
	if storekit.NoneAnswered(groupsErr) {
		return groupsErr
	}
	err = cmp.Or(err, groupsErr)
	isWhole := err == nil
	if !isWhole {
		d.skip("Some records were not counted: %v", err)
	}
	c := tally{stats, groups, time.Now()}
	d.add(some(c.unread(), "topics")...)
	d.add(some(c.unseen(d.config.Unseen), "groups")...)
	d.add(some(c.unrenewed(d.config.Unseen), "registrations")...)
	d.add(some(c.failing(d.config.FailingFor, d.config.Unseen), "calls")...)
	d.add(some(c.reported(d.config.Unseen, true), "groups")...)
	d.add(some(c.reported(d.config.Unseen, false), "topics")...)
	d.add(some(c.hanging(d.config.Unseen, d.config.MaxHandling), "handlers")...)
	d.add(some(c.differing(d.config.Unseen), "topics")...)
	d.add(some(c.late(d.config.MaxAge), "topics")...)
	d.add(some(c.dead(), "topics")...)
	if err := d.unreadable(ctx, c, linesSearched); err != nil {
		d.skip("Not all records that cannot be read were found: %v", err)
	}
	if err := d.waiting(ctx, c, linesSearched); err != nil {
		d.skip("Not all ended leases and records that fail again and again were found: %v", err)
	}
	if !isWhole {
		// The dead records of a store that answers again would seem to be new.
		return nil
	}
	return d.watch(ctx, c)
}

// some returns the first problems, and one that says how many are left out.
func some(problems []Problem, of string) []Problem {
	if len(problems) <= mostOfAKind {
		return problems
	}
	last := problems[mostOfAKind-1]
	left := len(problems) - mostOfAKind
	return append(slices.Clone(problems[:mostOfAKind]), Problem{
		Kind: last.Kind, Severity: last.Severity, Text: fmt.Sprintf("The same holds for %d more %s.", left, of), Remedy: last.Remedy,
	})
}

// group returns the group of a row; zero if there is none.
func (c tally) group(name string) outmill.GroupInfo {
	i := slices.IndexFunc(c.groups, func(g outmill.GroupInfo) bool { return g.Group == name })
	if i < 0 {
		return outmill.GroupInfo{Group: name}
	}
	return c.groups[i]
}

// unread are the topics whose records no group reads.
func (c tally) unread() (problems []Problem) {
	for _, row := range c.stats {
		switch {
		case row.Pending == 0:
		case row.Group == "":
			problems = append(problems, Problem{
				Kind: "topic_unread", Severity: Warning, Store: row.Store, Topic: row.Topic, Since: row.OldestDue.UTC(),
				Text:   fmt.Sprintf("No group reads topic %s, so %s for the first that registers.", quote(row.Topic), waiting(row.Pending)),
				Remedy: "Start a subscriber or forwarder for the topic, or stop publishing to it and delete its records.",
			})
		case !selects(c.group(row.Group), row.Topic):
			problems = append(problems, Problem{
				Kind: "topic_unread", Severity: Warning, Store: row.Store, Group: row.Group, Topic: row.Topic, Since: row.OldestDue.UTC(),
				Text: fmt.Sprintf("Group %s has no registration for topic %s any more, and %s in it.",
					quote(row.Group), quote(row.Topic), waiting(row.Pending)),
				Remedy: "Start a worker of the group for the topic, or drop the group: outmill groups drop.",
			})
		}
	}
	return problems
}

// isGone reports whether a worker has stopped, or has not registered for the limit.
func isGone(w outmill.WorkerInfo, now time.Time, limit time.Duration) bool {
	return w.Stopped || now.Sub(w.SeenAt) > limit
}

// absent reports whether nobody reads for the group any more: since when, and how that shows. A group with
// a registration that is later than the stop of its last worker may have a worker without a name.
func absent(g outmill.GroupInfo, now time.Time, limit time.Duration) (gone bool, since time.Time, text string) {
	if len(g.Registrations) == 0 {
		return false, since, ""
	}
	var last outmill.WorkerInfo
	stopped := false
	for _, w := range g.Workers {
		if w.SeenAt.After(last.SeenAt) {
			last = w
		}
		stopped = stopped || w.Stopped
	}
	alive := slices.ContainsFunc(g.Workers, func(w outmill.WorkerInfo) bool { return !isGone(w, now, limit) })
	switch {
	case stopped && !alive && last.Stopped && !g.SeenAt.After(last.SeenAt):
		return true, last.SeenAt, fmt.Sprintf("its last one, %s, stopped at %s.", quote(last.Name), last.SeenAt.UTC().Format(time.RFC3339))
	case now.Sub(g.SeenAt) <= limit:
		return false, since, ""
	}
	text = fmt.Sprintf("it last registered at %s.", g.SeenAt.UTC().Format(time.RFC3339))
	if len(g.Workers) > 0 {
		text += fmt.Sprintf(" Its last worker was %s.", quote(last.Name))
	}
	return true, g.SeenAt, text
}

// unseen are the groups whose workers are gone.
func (c tally) unseen(limit time.Duration) (problems []Problem) {
	for _, g := range c.groups {
		gone, since, text := absent(g, c.now, limit)
		if !gone {
			continue
		}
		text = fmt.Sprintf("Group %s has no worker: %s", quote(g.Group), text)
		n := 0
		for _, row := range c.stats {
			if row.Group == g.Group {
				n += row.Pending
			}
		}
		if n > 0 {
			text += fmt.Sprintf(" In it, %s.", waiting(n))
		}
		problems = append(problems, Problem{
			Kind: "group_unseen", Severity: Warning, Group: g.Group, Since: since.UTC(), Text: text,
			Remedy: "Start a worker of the group. If nobody needs the group any more, drop it (outmill groups drop), " +
				"because each message to its topics makes a record for it.",
		})
	}
	return problems
}

// late are the topics whose oldest due record waits for too long, the oldest first. Records that
// no group reads are unread instead.
func (c tally) late(limit time.Duration) (problems []Problem) {
	rows := slices.Clone(c.stats)
	slices.SortStableFunc(rows, func(a, b outmill.TopicStats) int { return a.OldestDue.Compare(b.OldestDue) })
	for _, row := range rows {
		if row.OldestDue.IsZero() || row.Group == "" || !selects(c.group(row.Group), row.Topic) || c.now.Sub(row.OldestDue) <= limit {
			continue
		}
		problems = append(problems, Problem{
			Kind: "oldest_due", Severity: Warning, Store: row.Store, Group: row.Group, Topic: row.Topic, Since: row.OldestDue.UTC(),
			Text: fmt.Sprintf("A record of group %s and topic %s has been due for %v.",
				quote(row.Group), quote(row.Topic), c.now.Sub(row.OldestDue).Round(time.Second)),
			Remedy: "Check that a worker of the group runs and that its handler or broker keeps up. outmill why explains a single record.",
		})
	}
	return problems
}

const deadRemedy = "List them and read their last error (outmill list --status dead), repair the cause, and requeue or delete them."

// dead are the topics with dead records, the most first.
func (c tally) dead() (problems []Problem) {
	rows := slices.Clone(c.stats)
	slices.SortStableFunc(rows, func(a, b outmill.TopicStats) int { return cmp.Compare(b.Dead, a.Dead) })
	for _, row := range rows {
		if row.Dead == 0 {
			break
		}
		problems = append(problems, Problem{
			Kind: "dead_records", Severity: Warning, Store: row.Store, Group: row.Group, Topic: row.Topic, Remedy: deadRemedy,
			Text: fmt.Sprintf("%s has dead records of topic %s: %s.", groupOf(row), quote(row.Topic), records(row.Dead)),
		})
	}
	return problems
}

func groupOf(row outmill.TopicStats) string {
	if row.Group == "" {
		return "The store"
	}
	return "Group " + quote(row.Group)
}

// watch counts again after a while.
func (d *doctor) watch(ctx context.Context, first tally) error {
	if d.config.Watch == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d.config.Watch):
	}
	stats, err := d.store.Stats(ctx, 0)
	if storekit.NoneAnswered(err) {
		return err
	}
	if risen := deadOf(stats) - deadOf(first.stats); risen > 0 {
		d.add(Problem{
			Kind: "dead_rising", Severity: Warning, Remedy: deadRemedy,
			Text: fmt.Sprintf("The number of dead records has risen by %d in %v.", risen, d.config.Watch),
		})
	}
	return nil
}

func deadOf(stats []outmill.TopicStats) (n int) {
	for _, row := range stats {
		n += row.Dead
	}
	return n
}

// countLimit is where Stats ends a count by default.
const countLimit = 10_000

// records prints how many there are, as far as Stats has counted.
func records(n int) string {
	if n >= countLimit {
		return fmt.Sprintf("%d or more records", n)
	}
	return times(n, "record")
}

func waiting(n int) string {
	if n == 1 {
		return "1 record waits"
	}
	return records(n) + " wait"
}
