// Package steps knows what becomes of the steps of joins. Stores share it.
package steps

import (
	"errors"
	"fmt"

	"github.com/outmill/outmill"
)

// Settled is what has become of a step by its message's records: open are still
// to be settled, acked and dead the others. One whose records are all gone, and
// none was acked, has failed.
func Settled(open, acked, dead int) outmill.StepStatus {
	switch {
	case dead > 0 || open <= 0 && acked == 0:
		return outmill.StepFailed
	case open <= 0:
		return outmill.StepCompleted
	}
	return outmill.StepPending
}

// Counts are what is to be added to those of a join.
type Counts struct{ Completed, Failed int }

// Moved is the counts with a step that went from one status to another.
func (c Counts) Moved(from, to outmill.StepStatus) Counts {
	add := func(status outmill.StepStatus, n int) {
		switch status {
		case outmill.StepCompleted:
			c.Completed += n
		case outmill.StepFailed:
			c.Failed += n
		case outmill.StepPending:
		}
	}
	add(from, -1)
	add(to, +1)
	return c
}

const (
	mostParts    = 16
	stepsPerPart = 4
)

// Parts is in how many parts a store keeps the counts of a join whose writers conflict
// with each other rather than wait: each transaction adds to one part, chosen at
// random, and the sum of all is what counts. A join that expects few steps has one,
// because each part is written once more when the join ends: so nothing can be added
// to a part by who has not seen the end.
func Parts(join *outmill.Join) int {
	if join.Unsealed {
		return mostParts
	}
	return min(max(join.ExpectedSteps/stepsPerPart, 1), mostParts)
}

// Refused reports whether err says that a join takes no step.
func Refused(err error) bool {
	return errors.Is(err, outmill.ErrUnknownJoin) || errors.Is(err, outmill.ErrJoinFinished) || errors.Is(err, outmill.ErrTooManySteps)
}

// StatusesOf are the statuses that a query selects, each of which a store lists
// by an index.
func StatusesOf(query outmill.JoinQuery) []outmill.JoinStatus {
	if query.Status != "" {
		return []outmill.JoinStatus{query.Status}
	}
	return []outmill.JoinStatus{outmill.JoinPending, outmill.JoinCompleted, outmill.JoinFailed, outmill.JoinCancelled}
}

// Takes refuses n more steps of a join that is not there (nil), not pending, or
// full: it has so many members already, which is not asked of one whose size is
// not known.
func Takes(id outmill.JoinID, join *outmill.Join, members, n int) error {
	switch {
	case join == nil:
		return fmt.Errorf("%w: %s", outmill.ErrUnknownJoin, id)
	case join.Status != outmill.JoinPending:
		return fmt.Errorf("%w: %s is %s", outmill.ErrJoinFinished, id, join.Status)
	case !join.Unsealed && members+n > join.ExpectedSteps:
		return fmt.Errorf("%w: %s has %d of %d steps, and would get %d more", outmill.ErrTooManySteps, id, members, join.ExpectedSteps, n)
	}
	return nil
}

// Seals refuses to seal a join with fewer steps than it has.
func Seals(id outmill.JoinID, members, expected int) error {
	if members > expected {
		return fmt.Errorf("%w: %s has %d steps already, and was to be sealed with %d", outmill.ErrTooManySteps, id, members, expected)
	}
	return nil
}
