package monitor

import (
	"errors"
	"fmt"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// deadCount is the number of dead records at the beginning of a window.
type deadCount struct {
	number int
	since  time.Time
}

// schemaProblem names the error of a store whose schema the program cannot use.
func schemaProblem(err error) (Problem, bool) {
	if errors.Is(err, outmill.ErrSchemaMissing) || errors.Is(err, outmill.ErrSchemaOutdated) || errors.Is(err, outmill.ErrSchemaNewer) {
		return problemOf(err), true
	}
	return Problem{}, false
}

// problemOf names the failure of a check. The driver's text stays out of the answer, because it
// can hold an address or a credential.
func problemOf(err error) Problem {
	p := problemFrom(storekit.StoreFinding(err))
	p.Err = err
	return p
}

// problemsOf is problemOf for each of several stores that failed: warnings if others answered.
func problemsOf(err error) []Problem {
	var partial *storekit.PartialError
	if !storekit.SomeAnswered(err) || !errors.As(err, &partial) {
		return []Problem{problemOf(err)}
	}
	problems := make([]Problem, 0, len(partial.Failed))
	for _, store := range partial.Stores() {
		p := problemOf(partial.Failed[store])
		p.Store, p.Severity = store, Warning
		problems = append(problems, p)
	}
	return problems
}

// problemFrom is the finding of a store as a problem.
func problemFrom(f roles.Finding) Problem {
	severity := Warning
	if f.Failure {
		severity = Failure
	}
	return Problem{
		Kind: f.Code, Severity: severity, Store: f.Store, Subject: f.Subject, Since: f.Since.UTC(), Text: f.Text, Remedy: f.Remedy,
	}
}

// late warns of the record that has been due longest, one for the whole store: the answer does
// not grow with the number of topics.
func (h *Health) late(now time.Time, stats []outmill.TopicStats) []Problem {
	var oldest outmill.TopicStats
	for _, s := range stats {
		if !s.OldestDue.IsZero() && (oldest.OldestDue.IsZero() || s.OldestDue.Before(oldest.OldestDue)) {
			oldest = s
		}
	}
	if oldest.OldestDue.IsZero() || now.Sub(oldest.OldestDue) <= h.config.MaxAge {
		return nil
	}
	remedy := "Check that a subscriber or forwarder of the group runs, and that its handler or broker keeps up."
	if oldest.Group == "" {
		remedy = "Start a subscriber or forwarder for the topic: no group is registered for it."
	}
	return []Problem{{
		Kind: "oldest_due", Severity: Warning, Store: oldest.Store, Group: oldest.Group, Topic: oldest.Topic, Remedy: remedy,
		Text: fmt.Sprintf("A record has been due for %v.", now.Sub(oldest.OldestDue).Round(time.Second)),
	}}
}

// dying warns if more records are dead than at the beginning of the window.
func (h *Health) dying(now time.Time, stats []outmill.TopicStats) []Problem {
	number := 0
	for _, s := range stats {
		number += s.Dead
	}
	if h.dead.since.IsZero() || now.Sub(h.dead.since) > h.config.DeadWindow || number < h.dead.number {
		h.dead = deadCount{number: number, since: now}
	}
	risen := number - h.dead.number
	if risen <= h.config.MaxNewDead {
		return nil
	}
	return []Problem{{
		Kind: "dead_rising", Severity: Warning,
		Text:   fmt.Sprintf("The number of dead records has risen by %d to %d.", risen, number),
		Remedy: "List the dead records, read their last error, repair the cause and requeue them.",
	}}
}
