package monitor

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// HealthForwarder is what [Health] checks of a forwarder. Package forwarder's Forwarder is one.
type HealthForwarder interface {
	MeteredForwarder
	// ClaimedAt is when the forwarder last claimed without an error, or began; zero while it
	// does not run.
	ClaimedAt() time.Time
}

// stuck warns of forwarders that forward nothing. All are warnings, because a restart helps
// against none of them.
func (h *Health) stuck(now time.Time) (problems []Problem) {
	for _, name := range slices.Sorted(maps.Keys(h.config.Forwarders)) {
		forwarder := h.config.Forwarders[name]
		at := forwarder.ClaimedAt()
		if forwarder.BreakerOpen() {
			problems = append(problems, Problem{
				Kind: "breaker_open", Severity: Warning, Subject: name,
				Text:   "The forwarder holds all records back, because the broker accepts none.",
				Remedy: "Check that the broker runs, that the network reaches it and that the login is right. The forwarder tries it again by itself.",
			})
		} else if !at.IsZero() && now.Sub(at) > h.config.MaxUnclaimed {
			problems = append(problems, Problem{
				Kind: "not_claiming", Severity: Warning, Subject: name, Since: at.UTC(),
				Text:   fmt.Sprintf("The forwarder has not claimed for %v.", now.Sub(at).Round(time.Second)),
				Remedy: "Look for errors of claims in its log. If there are none, its publisher hangs.",
			})
		}
		if held := forwarder.HeldTopics(); len(held) > 0 {
			problems = append(problems, Problem{
				Kind: "topics_held", Severity: Warning, Subject: name,
				Text:   fmt.Sprintf("The broker refuses topics, so their records wait: %s.", strings.Join(held[:min(len(held), mostOfAKind)], ", ")),
				Remedy: "Create the topics at the broker, or grant access to them. The forwarder tries them again by itself.",
			})
		}
	}
	return problems
}
