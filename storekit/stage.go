package storekit

// Stages say more closely than its status where a record that is not settled stands. See WaitingReader.
const (
	// A claim has set the record aside because it is paused: see Pauses.
	StageAside   = -1
	StageReady   = 0 // due, and nothing is known to block it
	StageHeld    = 1 // due, but an earlier record of its key blocks it
	StageWaiting = 2 // waits for a retry, or was snoozed
	StageDelayed = 3 // not due for the first time
	StageLeased  = 4
)
