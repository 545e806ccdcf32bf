package monitor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// report is the problem of one topic that workers of a group have reported, "" for all topics.
type report struct {
	latest  outmill.WorkerInfo
	workers int
}

// reported are the problems that workers have reported with their registrations: that the broker
// accepts nothing if whole is true, else the topics that it refuses. A worker that was not seen
// for limit is gone, and with it what it knew.
func (c tally) reported(limit time.Duration, whole bool) (problems []Problem) {
	for _, g := range c.groups {
		reports := map[string]report{}
		for _, worker := range g.Workers {
			if isGone(worker, c.now, limit) {
				continue
			}
			for topic := range worker.Problems {
				r := reports[topic]
				if r.workers++; r.workers == 1 || worker.SeenAt.After(r.latest.SeenAt) {
					r.latest = worker
				}
				reports[topic] = r
			}
		}
		for _, topic := range slices.Sorted(maps.Keys(reports)) {
			if whole == (topic == "") {
				problems = append(problems, reports[topic].problem(g.Group, topic))
			}
		}
	}
	return problems
}

func (r report) problem(group, topic string) Problem {
	p := Problem{Kind: "breaker_open", Severity: Warning, Group: group, Topic: topic, Subject: r.latest.Name, Remedy: brokerRemedy}
	if topic != "" {
		p.Kind, p.Remedy = "topics_held", heldRemedy
	}
	if isRepeat(r.latest.Problems[topic]) {
		p.Kind, p.Remedy = "comes_again", repeatRemedy
	}
	at := r.latest.SeenAt.UTC().Format(time.RFC3339)
	p.Text = fmt.Sprintf("Worker %s of group %s reported at %s", quote(r.latest.Name), quote(group), at)
	if topic != "" {
		p.Text += " for topic " + quote(topic)
	}
	p.Text += ": " + quote(r.latest.Problems[topic]) + "."
	if r.workers > 1 {
		p.Text += fmt.Sprintf(" %d workers report it.", r.workers)
	}
	return p
}

// isRepeat reports whether a problem that a worker has reported is of a record that comes again and
// again without an attempt.
func isRepeat(problem string) bool { return strings.HasPrefix(problem, storekit.RepeatedProblem) }

const repeatRemedy = "Read what is in the way in the text and in the worker's log, and remove it. Messages of one saga that " +
	"conflict often need its correlation value as their key and a reader in the order of keys. A handler that snoozes for ever " +
	"should return an error at some time."
