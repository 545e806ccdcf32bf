package monitor

import (
	"fmt"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// differing are the topics that workers of one group read in different orders or by different policies, as
// they have reported with their registrations. A worker that was not seen for limit is gone.
func (c tally) differing(limit time.Duration) (problems []Problem) {
	topics := map[string][]string{}
	for _, row := range c.stats {
		topics[row.Group] = append(topics[row.Group], row.Topic)
	}
	for _, g := range c.groups {
		runs := func(w outmill.WorkerInfo) bool { return !isGone(w, c.now, limit) }
		for _, conflict := range storekit.ReadConflicts(g, runs, topics[g.Group]...) {
			problems = append(problems, Problem{
				Kind: "orders_differ", Severity: Warning, Group: g.Group, Topic: conflict.Topics[0],
				Text: fmt.Sprintf("Group %s: %s", quote(g.Group), conflict), Remedy: storekit.ReadConflictRemedy,
			})
		}
	}
	return problems
}
