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

// HealthSubscriber is what [Health] checks of a subscriber. Package subscriber's Subscriber is one.
type HealthSubscriber interface {
	// ClaimedAt is when the subscriber last claimed without an error, or began; zero while it
	// does not read.
	ClaimedAt() time.Time
}

// stuck warns of forwarders that forward nothing, and of subscribers that read nothing. All are
// warnings, because a restart helps against none of them.
func (h *Health) stuck(now time.Time) (problems []Problem) {
	for _, name := range slices.Sorted(maps.Keys(h.config.Forwarders)) {
		forwarder := h.config.Forwarders[name]
		if forwarder.BreakerOpen() {
			problems = append(problems, Problem{
				Kind: "breaker_open", Severity: Warning, Subject: name, Remedy: brokerRemedy,
				Text: "The forwarder holds all records back, because the broker accepts none.",
			})
		} else {
			problems = append(problems, h.unclaimed(now, "forwarder", name, forwarder.ClaimedAt(), "its publisher hangs")...)
		}
		if held := forwarder.HeldTopics(); len(held) > 0 {
			problems = append(problems, Problem{
				Kind: "topics_held", Severity: Warning, Subject: name, Remedy: heldRemedy,
				Text: fmt.Sprintf("The broker refuses topics, so their records wait: %s.", strings.Join(held[:min(len(held), mostOfAKind)], ", ")),
			})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(h.config.Subscribers)) {
		at := h.config.Subscribers[name].ClaimedAt()
		problems = append(problems, h.unclaimed(now, "subscriber", name, at, "its handlers hang, or take longer than MaxUnclaimed")...)
		if reader, is := h.config.Subscribers[name].(MeteredSubscriber); is && reader.Repeats() > 0 {
			problems = append(problems, Problem{
				Kind: "comes_again", Severity: Warning, Subject: name, Remedy: repeatRemedy,
				Text: fmt.Sprintf("A record comes again and again without an attempt: %d times in a row.", reader.Repeats()),
			})
		}
	}
	return problems
}

// unclaimed warns of a forwarder or subscriber that has not claimed since at; zero is one that does
// not run.
func (h *Health) unclaimed(now time.Time, of, name string, at time.Time, otherwise string) []Problem {
	if at.IsZero() || now.Sub(at) <= h.config.MaxUnclaimed {
		return nil
	}
	return []Problem{{
		Kind: "not_claiming", Severity: Warning, Subject: name, Since: at.UTC(),
		Text:   fmt.Sprintf("The %s has not claimed for %v.", of, now.Sub(at).Round(time.Second)),
		Remedy: "Look for errors of claims in its log. If there are none, " + otherwise + ".",
	}}
}

const (
	brokerRemedy = "Check that the broker runs, that the network reaches it and that the login is right. The forwarder tries it again " +
		"by itself."
	heldRemedy = "Create the topics at the broker, or grant access to them. The forwarder tries them again by itself."
)
