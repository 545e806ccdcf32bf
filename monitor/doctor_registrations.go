package monitor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outmill/outmill"
)

// unrenewed are the registrations that nobody renews although their group registers: the worker that reads these
// topics is gone, or its registration fails.
func (c tally) unrenewed(limit time.Duration) (problems []Problem) {
	for _, g := range c.groups {
		if gone, _, _ := absent(g, c.now, limit); gone || c.now.Sub(g.SeenAt) > limit {
			continue // The group itself is unseen.
		}
		for _, reg := range g.Registrations {
			// One with an end goes by itself.
			if !reg.ExpiresAt.IsZero() || c.now.Sub(reg.SeenAt) <= limit || c.isRead(g, reg.Topics, limit) {
				continue
			}
			problems = append(problems, Problem{
				Kind: "registration_unseen", Severity: Warning, Group: g.Group, Since: reg.SeenAt.UTC(),
				Text: fmt.Sprintf("Group %s last registered for %s at %s, and for others later.", quote(g.Group), selection(reg.Topics),
					reg.SeenAt.UTC().Format(time.RFC3339)),
				Remedy: "Start a worker of the group that reads these topics, or look in its log for registrations that fail. If nobody " +
					"needs the registration any more, drop the group (outmill groups drop) and start its workers again.",
			})
		}
	}
	return problems
}

// isRead reports whether registrations that are renewed cover the selection, as after its list was changed.
func (c tally) isRead(g outmill.GroupInfo, topics outmill.Topics, limit time.Duration) bool {
	covers := func(entry string) bool {
		return slices.ContainsFunc(g.Registrations, func(r outmill.RegistrationInfo) bool {
			return c.now.Sub(r.SeenAt) <= limit && (len(r.Topics.Include) == 0 || slices.Contains(r.Topics.Include, entry) ||
				!strings.Contains(entry, "*") && r.Topics.Match(entry))
		})
	}
	if len(topics.Include) == 0 {
		return covers("*")
	}
	return !slices.ContainsFunc(topics.Include, func(entry string) bool { return !covers(entry) })
}

// selection prints topics.
func selection(topics outmill.Topics) string {
	if len(topics.Include) == 0 {
		return "all topics"
	}
	if len(topics.Include) == 1 {
		return "topic " + quote(topics.Include[0])
	}
	return "topics " + quote(strings.Join(topics.Include, ", "))
}
