package storekit

import "github.com/outmill/outmill"

// Stages are finer states of a record than its status. All stores of this project store
// them as these numbers, so that a partial index serves each kind of claim. Statements
// contain them as literals, because most engines use a partial index only then.
const (
	// A claim has set the record aside because it is paused: see Pauses. The number is below
	// the others because most conditions for records that are not settled are "less than
	// StageProcessed".
	StageAside     = -1
	StageReady     = 0 // due, and nothing is known to block it
	StageHeld      = 1 // due, but an earlier record of its key blocks it
	StageWaiting   = 2 // waits for a retry, or was snoozed
	StageDelayed   = 3 // not due for the first time
	StageLeased    = 4
	StageExpired   = 5 // a claim met it after its expiry; the janitor makes it dead
	StageProcessed = 6
	StageDead      = 7
)

// StatusOf returns the status of a record in this stage.
func StatusOf(stage int) outmill.Status {
	switch stage {
	case StageLeased:
		return outmill.StatusLeased
	case StageProcessed:
		return outmill.StatusProcessed
	case StageDead:
		return outmill.StatusDead
	}
	return outmill.StatusPending
}
