package monitor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// expiredError is the LastError of a record that went dead because it expired.
const expiredError = "expired"

// manyReturns is how often a record must have come back without an attempt for Why to mention it.
const manyReturns = 5

// why explains the records of one question.
type why struct {
	store  outmill.Inspector
	groups []outmill.GroupInfo
	// pauses are those of the store; none if it lacks the role.
	pauses []roles.PauseInfo
	now    time.Time
	// hideErrors and maxNeighbours are those of WhyConfig.
	hideErrors    bool
	maxNeighbours int
}

func (w why) explain(ctx context.Context, r *outmill.Record) (Explanation, error) {
	e := Explanation{
		Record: r.ID, MessageID: r.MessageID, Store: r.Store, Group: r.Group, Topic: r.Topic, Key: r.Key, Status: r.Status,
		Reasons: []Reason{}, Attempts: w.attempts(r),
	}
	ctx = storekit.InStoreOf(ctx, w.store, r)
	var reasons []Reason
	var err error
	switch r.Status {
	case outmill.StatusProcessed:
		reasons = w.processed(r)
	case outmill.StatusDead:
		reasons, err = w.dead(ctx, r)
	case outmill.StatusLeased:
		reasons = w.leased(r)
	case outmill.StatusPending:
		reasons, err = w.pending(ctx, r)
	}
	if err != nil {
		return e, err
	}
	e.Reasons = slices.Concat(e.Reasons, reasons, unreadable(r))
	joins, err := w.joins(ctx, r)
	e.Reasons = append(e.Reasons, joins...)
	return e, err
}

func (w why) processed(r *outmill.Record) []Reason {
	text := fmt.Sprintf("It was processed at %s", w.at(r.ProcessedAt))
	if r.ProcessedBy != "" {
		text += " by " + quote(r.ProcessedBy)
	}
	return []Reason{{Kind: "processed", Text: text + ". The store keeps it for its retention.", At: r.ProcessedAt}}
}

func (w why) leased(r *outmill.Record) []Reason {
	reason := Reason{Kind: "leased", At: r.LeaseUntil, Text: fmt.Sprintf(
		"Worker %s has it: its lease number %d ends at %s.", r.Owner, r.Claims, w.at(r.LeaseUntil))}
	if !r.LeaseUntil.After(w.now) {
		reason.Kind = "lease_ended"
		reason.Text = fmt.Sprintf("Worker %s had it, and its lease ended at %s without an outcome. The next claim of the group may return it.",
			r.Owner, w.at(r.LeaseUntil))
	}
	reasons := append([]Reason{reason}, failures(r)...)
	if reason.Kind == "lease_ended" {
		reasons = append(reasons, w.readers(r)...)
	} else {
		reasons = append(reasons, w.reports(r)...)
	}
	return append(reasons, w.expiry(r)...)
}

// failures says what happened to a record that was claimed before.
func failures(r *outmill.Record) (reasons []Reason) {
	if r.Suspect() {
		reasons = append(reasons, Reason{Kind: "suspect", Text: fmt.Sprintf(
			"Its lease ended %d times without an outcome, so it may kill its worker: a claim returns it alone.", r.Expiries)})
	}
	ended := r.Claims
	if r.Status == outmill.StatusLeased {
		ended--
	}
	if back := ended - r.Attempts - r.Expiries; back >= manyReturns {
		reasons = append(reasons, Reason{Kind: "came_back", Text: fmt.Sprintf(
			"It was claimed %s and has %s, so it came back %s without an attempt: its handler put it off (Snooze), something was in the handler's "+
				"way, such as a conflict of sagas, or a worker gave it back. A requeue sets the number of attempts to 0.",
			times(ended, "time"), times(r.Attempts, "failed attempt"), times(back, "time"))})
	}
	return reasons
}

// unreadable says which parts of the record cannot be read. The text is the store's, and has no values of users.
func unreadable(r *outmill.Record) []Reason {
	if r.Unreadable == "" {
		return nil
	}
	text := "The store cannot read all of it: " + r.Unreadable + "."
	if r.Status == outmill.StatusPending || r.Status == outmill.StatusLeased {
		text += " The next claim makes it dead."
	}
	return []Reason{{Kind: "unreadable", Text: text}}
}

// attempts are the last attempts of the record, the newest first.
func (w why) attempts(r *outmill.Record) []Attempt {
	list := make([]Attempt, len(r.History))
	for i, a := range r.History {
		list[i] = Attempt(a)
		if w.hideErrors {
			list[i].Error = ""
		}
	}
	return list
}

func (w why) dead(ctx context.Context, r *outmill.Record) ([]Reason, error) {
	switch {
	case r.LastError == storekit.ParkedError:
		return w.parked(ctx, r)
	case r.LastError == expiredError && !r.ExpiresAt.IsZero():
		return []Reason{{Kind: "expired", At: r.ExpiresAt, Text: fmt.Sprintf(
			"It is dead, because it expired at %s. No claim returns it until it is requeued.", w.at(r.ExpiresAt))}}, nil
	}
	if storekit.Undeliverable(r.LastError) {
		return []Reason{{Kind: "dead", Text: "It is dead: a claim found that no reader can handle it, and nobody has handled it. " +
			"No claim returns it until it is requeued. " + w.lastError(r)}}, nil
	}
	return []Reason{{Kind: "dead", Text: fmt.Sprintf(
		"It is dead after %s. No claim returns it until it is requeued. %s", times(r.Claims, "claim"), w.lastError(r))}}, nil
}

func (w why) pending(ctx context.Context, r *outmill.Record) ([]Reason, error) {
	if r.Group == "" {
		return slices.Concat(w.noGroup(r), w.time(r), w.expiry(r)), nil
	}
	if !r.ExpiresAt.IsZero() && !r.ExpiresAt.After(w.now) {
		return w.expiry(r), nil
	}
	reasons := append(w.paused(r), w.time(r)...)
	switch {
	case r.NextAttemptAt.IsZero() && len(reasons) > 0:
		// A claim has set it aside for the pause.
	case r.NextAttemptAt.IsZero():
		held, err := w.held(ctx, r)
		if err != nil {
			return nil, err
		}
		reasons = append(reasons, held...)
	case !r.NextAttemptAt.After(w.now):
		due, err := w.due(ctx, r)
		if err != nil {
			return nil, err
		}
		reasons = append(reasons, due...)
	}
	reasons = append(reasons, failures(r)...)
	reasons = append(reasons, w.readers(r)...)
	return append(reasons, w.expiry(r)...), nil
}

// time says when a record that is not due yet becomes due.
func (w why) time(r *outmill.Record) []Reason {
	next := r.NextAttemptAt
	if !next.After(w.now) {
		return nil
	}
	reason := Reason{Kind: "delayed", At: next, Text: fmt.Sprintf("It was never claimed, and is not due before %s.", w.at(next))}
	switch {
	case r.Attempts > 0:
		reason.Kind = "retry"
		reason.Text = fmt.Sprintf("It is tried again at %s, after %s. %s", w.at(next), times(r.Attempts, "failed attempt"), w.lastError(r))
	case r.Claims > 0:
		reason.Kind = "snoozed"
		reason.Text = fmt.Sprintf("It was claimed and put off, without a failed attempt, until %s.", w.at(next))
	case !r.WaitsFor.IsZero():
		reason.Text = fmt.Sprintf("It is due when its join is decided, at the latest at %s.", w.at(next))
	}
	return []Reason{reason}
}

func (w why) expiry(r *outmill.Record) []Reason {
	switch {
	case r.ExpiresAt.IsZero():
		return nil
	case r.ExpiresAt.After(w.now):
		return []Reason{{Kind: "expires", At: r.ExpiresAt, Text: fmt.Sprintf("It expires at %s if it is not claimed before.", w.at(r.ExpiresAt))}}
	case r.Status == outmill.StatusLeased && r.LeaseUntil.After(w.now):
		return nil
	}
	return []Reason{{Kind: "expired", At: r.ExpiresAt, Text: fmt.Sprintf(
		"It expired at %s. No claim returns it; a janitor or a claim makes it dead.", w.at(r.ExpiresAt))}}
}
