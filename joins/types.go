package joins

import (
	"github.com/outmill/outmill/roles"
)

// Join is a join as a store keeps it. See [roles.Join].
type Join = roles.Join

// Policies of a join. See [roles.JoinPolicy].
const (
	// All waits for all steps. It is the default.
	All = roles.JoinAll
	// Any succeeds with the first completed step.
	Any = roles.JoinAny
	// Quorum succeeds with Join.Quorum completed steps.
	Quorum = roles.JoinQuorum
)

// Statuses of a join. See [roles.JoinStatus].
const (
	Pending   = roles.JoinPending
	Completed = roles.JoinCompleted
	Failed    = roles.JoinFailed
	Cancelled = roles.JoinCancelled
)

// Errors of joins, for errors.Is.
var (
	ErrUnknownJoin    = roles.ErrUnknownJoin
	ErrJoinFinished   = roles.ErrJoinFinished
	ErrJoinExists     = roles.ErrJoinExists
	ErrTooManySteps   = roles.ErrTooManySteps
	ErrUnknownMessage = roles.ErrUnknownMessage
	ErrUnknownStep    = roles.ErrUnknownStep
)
