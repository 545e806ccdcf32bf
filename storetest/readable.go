package storetest

import (
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

func readableAgrees(e *env) {
	if _, ok := e.Harness.(Viewer); !ok {
		e.T.Skip("the Harness is no Viewer")
	}
	e.requireReadable()
	e.Register(group)
	e.Register("", orders)
	e.Append(suite.Recs(orders, suite.Plain, suite.Numbered(8)...)...)
	e.Append(suite.Rec("others", "other"), suite.Rec(orders, "delayed", suite.WithDelay(time.Hour)),
		suite.Rec(orders, "short", suite.WithTTL(time.Minute)))
	e.Append(suite.Keyed("key", "head", "held", "behind")...)
	e.requireReadable()

	owner := outmill.NewOwnerToken()
	found := e.ClaimN(owner, 8, suite.From(orders))
	e.requireReadable()
	e.Ack(found[:2]...)
	e.Fail(found[2])
	e.Abandon(time.Hour, found[3])
	e.Release(found[4])
	e.Snooze(0, found[5])
	e.requireReadable()

	e.Ack(e.ClaimN(owner, 5, suite.OfGroup(""))...)
	e.requireReadable()
	e.Park(e.ClaimN(owner, 1, suite.From(orders), suite.ByKey)...)
	e.requireReadable()

	e.Elapse(leaseOf + 2*time.Minute)
	e.requireReadable()
	e.Reap(100)
	e.Did(e.Store.ExpireDue, 100)
	e.ClaimOn(owner, suite.ByKey)
	e.requireReadable()
}

func readableUnrouted(e *env) {
	if _, ok := e.Harness.(Viewer); !ok {
		e.T.Skip("the Harness is no Viewer")
	}
	e.Append(suite.Rec(orders, "waits"), suite.Rec("others", "delayed", suite.WithDelay(time.Hour)))
	e.requireReadable()
	e.Register("", "others")
	e.Append(suite.Rec("others", "routed"))
	e.requireReadable()
}

// requireReadable requires that the view agrees with Stats and List.
func (e *env) requireReadable() {
	e.T.Helper()
	shown := e.Harness.(Viewer).Readable()
	counted := map[string]outmill.TopicStats{}
	status := map[string]string{}
	for _, row := range shown {
		require.NotContains(e.T, status, row.ID, "shown twice")
		status[row.ID] = row.Status
		name, stats := "waiting: "+row.Topic, outmill.TopicStats{Topic: row.Topic}
		if row.Group != nil {
			name, stats.Group = *row.Group+": "+row.Topic, *row.Group
		}
		if known, ok := counted[name]; ok {
			stats = known
		}
		count(&stats, outmill.Status(row.Status))
		counted[name] = stats
	}
	want := e.stats(0)
	for name, stats := range want {
		// The view shows no due times here, and the status of a record whose lease has ended is leased.
		stats.OldestDue, stats.Delayed = time.Time{}, 0
		want[name] = openOf(stats)
	}
	for name, stats := range counted {
		counted[name] = openOf(stats)
	}
	require.Equal(e.T, want, counted, "what Stats counts, and what the view shows")
	listed := map[string]string{}
	for _, r := range e.List(outmill.ListQuery{}) {
		listed[r.ID.String()] = string(r.Status)
	}
	require.Equal(e.T, listed, status, "what List lists, and what the view shows")
}

// openOf counts leased records as pending.
func openOf(stats outmill.TopicStats) outmill.TopicStats {
	stats.Pending, stats.Leased = stats.Pending+stats.Leased, 0
	return stats
}

func count(stats *outmill.TopicStats, status outmill.Status) {
	switch status {
	case outmill.StatusPending:
		stats.Pending++
	case outmill.StatusLeased:
		stats.Leased++
	case outmill.StatusProcessed:
		stats.Processed++
	case outmill.StatusDead:
		stats.Dead++
	}
}
