package storekit

import (
	"context"
	"errors"
)

// ErrUncounted says that a step has acks that its joins do not count yet. See CountFirst.
var ErrUncounted = errors.New("outmill: acks of the step are not counted yet")

// CountFirst runs attach, which makes a message a step of a join. If the message is a step of
// another join already, and a transaction has acked one of its records, the ack must be counted
// before the message gets another join, which would count it a second time: attach then returns
// ErrUncounted, and CountFirst runs count and attach again, until ctx ends.
func CountFirst(ctx context.Context, attach, count func() error) error {
	for {
		err := attach()
		if !errors.Is(err, ErrUncounted) {
			return err
		}
		if err := count(); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// StepOutcome returns the status of a step from the records of its message: open counts the
// unsettled records, acked and dead the others. If all records are gone and none was acked,
// the step has failed.
func StepOutcome(open, acked, dead int) StepStatus {
	switch {
	case dead > 0 || open <= 0 && acked == 0:
		return StepFailed
	case open <= 0:
		return StepCompleted
	}
	return StepPending
}

// StepCounts are the numbers that a store adds to the counts of a join.
type StepCounts struct{ Completed, Failed int }

// Moved returns the counts after a step has changed from one status to another.
func (c StepCounts) Moved(from, to StepStatus) StepCounts {
	c.add(from, -1)
	c.add(to, +1)
	return c
}

func (c *StepCounts) add(status StepStatus, n int) {
	switch status {
	case StepCompleted:
		c.Completed += n
	case StepFailed:
		c.Failed += n
	case StepPending:
	}
}

const (
	mostParts    = 16
	stepsPerPart = 4
)

// CountParts returns the number of parts in which a store keeps the counts of a join, for
// engines whose concurrent writers conflict instead of waiting. Each transaction adds to
// one part, chosen at random, and the count is the sum of all parts. The end of the join
// writes every part, so that no transaction that has not seen the end can add to a part.
// Because that costs a write for each part, a join with few steps has one part.
func CountParts(join *Join) int {
	if join.Unsealed {
		return mostParts
	}
	return min(max(join.ExpectedSteps/stepsPerPart, 1), mostParts)
}
