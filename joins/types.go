package joins

import "github.com/outmill/outmill/storekit"

// Join is a join as a store keeps it. See [storekit.Join].
type Join = storekit.Join

// Policies of a join. See [storekit.JoinPolicy].
const (
	// All waits for all steps. It is the default.
	All = storekit.JoinAll
	// Any succeeds with the first completed step.
	Any = storekit.JoinAny
	// Quorum succeeds with Join.Quorum completed steps.
	Quorum = storekit.JoinQuorum
)

// Statuses of a join. See [storekit.JoinStatus].
const (
	Pending   = storekit.JoinPending
	Completed = storekit.JoinCompleted
	Failed    = storekit.JoinFailed
	Cancelled = storekit.JoinCancelled
)

// Errors of joins, for errors.Is.
var (
	ErrUnknownJoin    = storekit.ErrUnknownJoin
	ErrJoinFinished   = storekit.ErrJoinFinished
	ErrJoinExists     = storekit.ErrJoinExists
	ErrTooManySteps   = storekit.ErrTooManySteps
	ErrUnknownMessage = storekit.ErrUnknownMessage
	ErrUnknownStep    = storekit.ErrUnknownStep
)
