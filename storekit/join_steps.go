package storekit

import "github.com/outmill/outmill/roles"

// StepOutcome returns the status of a step from the records of its message: open counts the
// unsettled records, acked and dead the others. If all records are gone and none was acked,
// the step has failed.
func StepOutcome(open, acked, dead int) roles.StepStatus {
	switch {
	case dead > 0 || open <= 0 && acked == 0:
		return roles.StepFailed
	case open <= 0:
		return roles.StepCompleted
	}
	return roles.StepPending
}

// StepCounts are the numbers that a store adds to the counts of a join.
type StepCounts struct{ Completed, Failed int }

// Moved returns the counts after a step has changed from one status to another.
func (c StepCounts) Moved(from, to roles.StepStatus) StepCounts {
	c.add(from, -1)
	c.add(to, +1)
	return c
}

func (c *StepCounts) add(status roles.StepStatus, n int) {
	switch status {
	case roles.StepCompleted:
		c.Completed += n
	case roles.StepFailed:
		c.Failed += n
	case roles.StepPending:
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
func CountParts(join *roles.Join) int {
	if join.Unsealed {
		return mostParts
	}
	return min(max(join.ExpectedSteps/stepsPerPart, 1), mostParts)
}
