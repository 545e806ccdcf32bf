package monitor

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// FailingCaller is what [Health] and [Metrics] ask for the calls that a program repeats by itself and that
// fail: claims, acks, leases, registrations, upkeep and the connection that listens. The subscriber, the
// forwarder and the janitor of Outmill are such callers, and so are stores that listen.
type FailingCaller interface {
	// FailingCalls returns the calls that have failed since their last success.
	FailingCalls() []outmill.FailingCall
}

// kindOfFailing is the kind of the problem of a call that fails.
const kindOfFailing = "call_fails"

// callText has for a kind of call what it is called in a problem, what its failing means, and the remedy.
var callText = map[string]struct{ name, effect, remedy string }{
	storekit.CallClaim: {"claim", "No record is delivered.",
		"Read the error. Check that the database answers, and that its user has the rights of a reader (outmill doctor)."},
	storekit.CallSettle: {"outcome", "What handlers have finished comes again when the leases end.",
		"Read the error. Check that the database accepts writes, and that its user has the rights of a reader (outmill doctor)."},
	storekit.CallExtend: {"extension of leases", "Records whose handlers take longer than the lease are handled twice.",
		"Read the error. Check that the database accepts writes, and that the pool has a connection left."},
	storekit.CallRegister: {"registration", "The database does not know that the group is read.",
		"Read the error. Check that the database accepts writes, and that its user has the rights of a reader (outmill doctor)."},
	storekit.CallUpkeep: {"upkeep", "What it deletes or gives back stays.",
		"Read the error. Check the rights of the database's user (outmill doctor), and its load."},
	storekit.CallMaintain: {"maintenance of the store", "Deleted rows take space, and the store becomes slower.",
		"Read the error. Check the rights of the database's user (outmill doctor), and its load."},
	storekit.CallListen: {"listening connection", "Readers poll, so messages of other processes arrive later.",
		"Read the error. Check that the network and the server allow a connection that lasts. If they never do, turn it off: " +
			"NotifyInterval below 0 on PostgreSQL, WithoutChangeStream on MongoDB."},
	storekit.CallDiscover: {"discovery of tenants", "New tenants are not read, and old ones stay.",
		"Read the error. Check the catalog of the tenants."},
}

// failingProblem is the problem of a call that fails. from names who has reported it.
func failingProblem(call outmill.FailingCall, from string) Problem {
	severity := Warning
	if storekit.EndsDelivery(call) {
		severity = Failure
	}
	about, known := callText[call.Call]
	if !known {
		about.name, about.remedy = "call of the kind "+quote(call.Call), "Read the error."
	}
	part := ""
	if call.Part != "" {
		part = " (" + call.Part + ")"
	}
	text := fmt.Sprintf("No %s%s of %s has succeeded since %s: %d failed, the last with %s.", about.name, part, from,
		call.Since.UTC().Format(time.RFC3339), call.Times, quote(call.Err))
	if about.effect != "" {
		text += " " + about.effect
	}
	return Problem{Kind: kindOfFailing, Severity: severity, Store: call.Store, Since: call.Since.UTC(), Text: text, Remedy: about.remedy}
}

// failing reports the calls of this process that have failed for too long, each once.
func (h *Health) failing(now time.Time) (problems []Problem) {
	known := map[outmill.FailingCall]bool{}
	report := func(from, name string, caller any) {
		for _, call := range storekit.FailingOf(caller) {
			if now.Sub(call.Since) <= h.config.FailingFor || known[call] {
				continue
			}
			known[call] = true
			p := failingProblem(call, from)
			p.Subject = name
			problems = append(problems, p)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(h.config.Forwarders)) {
		report("the forwarder "+quote(name), name, h.config.Forwarders[name])
	}
	for _, name := range slices.Sorted(maps.Keys(h.config.Subscribers)) {
		report("the subscriber "+quote(name), name, h.config.Subscribers[name])
	}
	for _, name := range slices.Sorted(maps.Keys(h.config.Janitors)) {
		report("the janitor "+quote(name), name, h.config.Janitors[name])
	}
	report("the store", "", h.store)
	return some(problems, "calls")
}

// failingReport is a call that workers of a group have reported as failing.
type failingReport struct {
	call    outmill.FailingCall
	worker  outmill.WorkerInfo
	workers int
}

// failing are the calls that workers have reported with their registrations as failing, and that had failed for
// too long. A worker that was not seen for unseen is gone.
func (c tally) failing(limit, unseen time.Duration) (problems []Problem) {
	for _, g := range c.groups {
		for _, r := range c.failingOf(g, limit, unseen) {
			p := failingProblem(r.call, fmt.Sprintf("group %s in worker %s", quote(g.Group), quote(r.worker.Name)))
			p.Group, p.Subject = g.Group, r.worker.Name
			p.Text += fmt.Sprintf(" Reported at %s", r.worker.SeenAt.UTC().Format(time.RFC3339))
			if r.workers > 1 {
				p.Text += fmt.Sprintf(" by %d workers", r.workers)
			}
			p.Text += "."
			problems = append(problems, p)
		}
	}
	return problems
}

// failingOf has one report for each call, that of the worker in which it has failed longest.
func (c tally) failingOf(g outmill.GroupInfo, limit, unseen time.Duration) []*failingReport {
	var list []*failingReport
	for _, worker := range g.Workers {
		if isGone(worker, c.now, unseen) {
			continue
		}
		for _, call := range worker.Failing {
			if c.now.Sub(call.Since) <= limit {
				continue
			}
			i := slices.IndexFunc(list, func(r *failingReport) bool {
				return r.call.Call == call.Call && r.call.Part == call.Part && r.call.Store == call.Store
			})
			if i < 0 {
				list = append(list, &failingReport{call, worker, 1})
				continue
			}
			list[i].workers++
			if call.Since.Before(list[i].call.Since) {
				list[i].call, list[i].worker = call, worker
			}
		}
	}
	return list
}
