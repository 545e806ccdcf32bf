package storekit

// StepOutcome is the status of a step by the records of its message: open are still to be
// settled, acked and dead the others. A step whose records are all gone, none of them
// acked, has failed.
func StepOutcome(open, acked, dead int) StepStatus {
	switch {
	case dead > 0 || open <= 0 && acked == 0:
		return StepFailed
	case open <= 0:
		return StepCompleted
	}
	return StepPending
}

// StepCounts are what a store adds to the counts of a join.
type StepCounts struct{ Completed, Failed int }

// Moved is the counts with a step that went from one status to another.
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

// CountParts is in how many parts a store keeps the counts of a join whose writers conflict
// with each other rather than wait: each transaction adds to one part, chosen at random,
// and the sum of all parts counts. A join that expects few steps has one part, because the
// end of the join writes every part: so no transaction that has not seen the end can add to
// a part.
func CountParts(join *Join) int {
	if join.Unsealed {
		return mostParts
	}
	return min(max(join.ExpectedSteps/stepsPerPart, 1), mostParts)
}
