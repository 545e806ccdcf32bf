// Package steps knows what becomes of the steps of joins. Stores share it.
package steps

import (
	"errors"
	"fmt"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Settled is what has become of a step by its message's records: open are still
// to be settled, acked and dead the others. One whose records are all gone, and
// none was acked, has failed.
func Settled(open, acked, dead int) storekit.StepStatus {
	switch {
	case dead > 0 || open <= 0 && acked == 0:
		return storekit.StepFailed
	case open <= 0:
		return storekit.StepCompleted
	}
	return storekit.StepPending
}

// Counts are what is to be added to those of a join.
type Counts struct{ Completed, Failed int }

// Moved is the counts with a step that went from one status to another.
func (c Counts) Moved(from, to storekit.StepStatus) Counts {
	add := func(status storekit.StepStatus, n int) {
		switch status {
		case storekit.StepCompleted:
			c.Completed += n
		case storekit.StepFailed:
			c.Failed += n
		case storekit.StepPending:
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
func Parts(join *storekit.Join) int {
	if join.Unsealed {
		return mostParts
	}
	return min(max(join.ExpectedSteps/stepsPerPart, 1), mostParts)
}

// Refused reports whether err says that a join takes no step.
func Refused(err error) bool {
	return errors.Is(err, storekit.ErrUnknownJoin) || errors.Is(err, storekit.ErrJoinFinished) || errors.Is(err, storekit.ErrTooManySteps)
}

// StatusesOf are the statuses that a query selects, each of which a store lists
// by an index.
func StatusesOf(query storekit.JoinQuery) []storekit.JoinStatus {
	if query.Status != "" {
		return []storekit.JoinStatus{query.Status}
	}
	return []storekit.JoinStatus{storekit.JoinPending, storekit.JoinCompleted, storekit.JoinFailed, storekit.JoinCancelled}
}

// Takes refuses n more steps of a join that is not there (nil), not pending, or
// full: it has so many members already, which is not asked of one whose size is
// not known.
func Takes(id outmill.JoinID, join *storekit.Join, members, n int) error {
	switch {
	case join == nil:
		return fmt.Errorf("%w: %s", storekit.ErrUnknownJoin, id)
	case join.Status != storekit.JoinPending:
		return fmt.Errorf("%w: %s is %s", storekit.ErrJoinFinished, id, join.Status)
	case !join.Unsealed && members+n > join.ExpectedSteps:
		return fmt.Errorf("%w: %s has %d of %d steps, and would get %d more", storekit.ErrTooManySteps, id, members, join.ExpectedSteps, n)
	}
	return nil
}

// Seals refuses to seal a join with fewer steps than it has.
func Seals(id outmill.JoinID, members, expected int) error {
	if members > expected {
		return fmt.Errorf("%w: %s has %d steps already, and was to be sealed with %d", storekit.ErrTooManySteps, id, members, expected)
	}
	return nil
}
