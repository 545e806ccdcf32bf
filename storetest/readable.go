package storetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outmill/outmill"
)

func readableAgrees(e *env) {
	if e.h.Readable == nil {
		e.t.Skip("Harness.Readable is not given")
	}
	e.requireReadable()
	e.register(group)
	e.register("", orders)
	e.append(recs(orders, plain, numbered(8)...)...)
	e.append(rec("others", "other"), rec(orders, "delayed", withDelay(time.Hour)), rec(orders, "short", withTTL(time.Minute)))
	e.append(keyed("key", "head", "held", "behind")...)
	e.requireReadable()

	owner := outmill.NewOwnerToken()
	found := e.claimN(owner, 8, from(orders))
	e.requireReadable()
	e.ack(found[:2]...)
	e.fail(found[2])
	e.abandon(time.Hour, found[3])
	e.release(found[4])
	e.snooze(0, found[5])
	e.requireReadable()

	e.ack(e.claimN(owner, 5, ofGroup(""))...)
	e.requireReadable()
	e.park(e.claimN(owner, 1, from(orders), byKey)...)
	e.requireReadable()

	e.elapse(leaseOf + 2*time.Minute)
	e.requireReadable()
	e.reap(100)
	e.did(e.store.ExpireDue, 100)
	e.claimOn(owner, byKey)
	e.requireReadable()
}

func readableUnrouted(e *env) {
	if e.h.Readable == nil {
		e.t.Skip("Harness.Readable is not given")
	}
	e.append(rec(orders, "waits"), rec("others", "delayed", withDelay(time.Hour)))
	e.requireReadable()
	e.register("", "others")
	e.append(rec("others", "routed"))
	e.requireReadable()
}

// requireReadable wants the view to show what Stats counts and List lists.
func (e *env) requireReadable() {
	e.t.Helper()
	shown := e.h.Readable(e.t, e.store)
	counted := map[string]outmill.TopicStats{}
	status := map[string]string{}
	for _, row := range shown {
		require.NotContains(e.t, status, row.ID, "shown twice")
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
		stats.OldestDue = time.Time{}
		want[name] = stats
	}
	require.Equal(e.t, want, counted, "what Stats counts, and what the view shows")
	listed := map[string]string{}
	for _, r := range e.list(outmill.ListQuery{}) {
		listed[r.ID.String()] = string(r.Status)
	}
	require.Equal(e.t, listed, status, "what List lists, and what the view shows")
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
