package monitor

import (
	"fmt"
	"slices"
	"time"

	"github.com/outmill/outmill"
)

// hanging are the handlers that have run for longer than most, as workers have reported with their
// registrations, the longest first. A worker that was not seen for limit is gone, and with it its handlers.
func (c tally) hanging(limit, most time.Duration) []Problem {
	type running struct {
		outmill.Handling
		group  string
		worker outmill.WorkerInfo
	}
	var all []running
	for _, g := range c.groups {
		for _, worker := range g.Workers {
			for _, h := range worker.Handling {
				if !isGone(worker, c.now, limit) && c.now.Sub(h.Since) > most {
					all = append(all, running{h, g.Group, worker})
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b running) int { return a.Since.Compare(b.Since) })
	problems := make([]Problem, len(all))
	for i, h := range all {
		problems[i] = Problem{
			Kind: "handler_hangs", Severity: Warning, Store: h.Store, Group: h.group, Topic: h.Topic, Subject: h.worker.Name, Since: h.Since.UTC(),
			Text: fmt.Sprintf("A handler of group %s and topic %s has run since %s in worker %s: it has record %s, as the worker reported at %s. "+
				"Until it returns, no other worker gets the record, nor, in the order of keys, a later one of its key.", quote(h.group), quote(h.Topic),
				h.Since.UTC().Format(time.RFC3339), quote(h.worker.Name), h.Record, h.worker.SeenAt.UTC().Format(time.RFC3339)),
			Remedy: "Find out what it waits for, such as by a dump of the goroutines of that process, and give its calls a timeout. After " +
				"MaxProcessing the worker gives the record to others. If the handler is only slow, raise --max-handling.",
		}
	}
	return problems
}
