package storekit

import (
	"time"

	"github.com/outmill/outmill/roles"
)

// JoinState is a join that a store has read, with times by the database's clock.
type JoinState struct {
	roles.Join
	// Late says that the deadline has passed. DeadlineIn is the time until the deadline.
	Late       bool
	DeadlineIn time.Duration
	// Members is the number of steps, if the store has counted them.
	Members int
}

// Decide returns the status with which the join ends if it is finished now, or JoinPending
// if that is not decided yet.
func (j *JoinState) Decide(request roles.FinishRequest) (status roles.JoinStatus, reason string) {
	needed := 1
	switch j.Policy {
	case roles.JoinQuorum:
		needed = j.Quorum
		fallthrough
	case roles.JoinAny:
		if j.CompletedSteps >= needed {
			return roles.JoinCompleted, ""
		}
		if !j.Unsealed && j.ExpectedSteps-j.FailedSteps < needed {
			return roles.JoinFailed, roles.ReasonNoQuorum
		}
	default:
		if !j.Unsealed && j.CompletedSteps+j.FailedSteps >= j.ExpectedSteps {
			if request.FailIfAnyStepFailed && j.FailedSteps > 0 {
				return roles.JoinFailed, roles.ReasonStepFailed
			}
			return roles.JoinCompleted, ""
		}
	}
	switch {
	case j.Late && j.CompleteAtDeadline:
		return roles.JoinCompleted, roles.ReasonDeadline
	case j.Late:
		return roles.JoinFailed, roles.ReasonDeadline
	}
	return roles.JoinPending, ""
}

// Decided reports whether the join has ended, or would end if it were finished now.
func (j *JoinState) Decided() bool {
	status, _ := j.Decide(roles.FinishRequest{})
	return j.Status != roles.JoinPending || status != roles.JoinPending
}
