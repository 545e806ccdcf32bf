package storekit

import (
	"fmt"
	"time"

	"github.com/outmill/outmill"
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

// result returns the result of a call that does not end the join.
func (j *JoinState) result() roles.FinishResult {
	result := roles.FinishResult{Join: j.Join}
	if j.Status == roles.JoinPending && !j.Deadline.IsZero() {
		result.DeadlineIn = j.DeadlineIn
	}
	return result
}

// checkSeal refuses a number of steps with which the join cannot be sealed, regardless of
// its present steps.
func (j *JoinState) checkSeal(expectedSteps int) error {
	switch {
	case expectedSteps < 0 || expectedSteps > roles.MaxJoinSteps:
		return &outmill.InvalidRecordError{Index: -1, Field: "expected steps",
			Reason: fmt.Sprintf("is %d: want 0 to %d", expectedSteps, roles.MaxJoinSteps)}
	case j.Status != roles.JoinPending:
		return fmt.Errorf("%w: %s is %s", roles.ErrJoinFinished, j.ID, j.Status)
	case !j.Unsealed && j.ExpectedSteps != expectedSteps:
		return &outmill.InvalidRecordError{Index: -1, Field: "expected steps",
			Reason: fmt.Sprintf("is %d: the join is sealed with %d", expectedSteps, j.ExpectedSteps)}
	}
	return nil
}

// takes returns an error if the join has ended, or if it is sealed and n more steps would
// exceed its number of steps.
func (j *JoinState) takes(n int) error {
	switch {
	case j.Status != roles.JoinPending:
		return fmt.Errorf("%w: %s is %s", roles.ErrJoinFinished, j.ID, j.Status)
	case !j.Unsealed && j.Members+n > j.ExpectedSteps:
		return fmt.Errorf("%w: %s has %d of %d steps, and would get %d more", roles.ErrTooManySteps, j.ID, j.Members, j.ExpectedSteps, n)
	}
	return nil
}

// CheckSteps refuses records that name a join that does not exist, has ended or is full.
// read returns the joins that exist, with Members if they are sealed. A store calls
// CheckSteps before it writes, so that the caller's transaction stays usable.
func CheckSteps(records []*outmill.Record, read func(ids []outmill.JoinID) ([]*JoinState, error)) error {
	wanted := map[outmill.JoinID]int{}
	var ids []outmill.JoinID
	for _, record := range records {
		for _, id := range record.Joins {
			if wanted[id]++; wanted[id] == 1 {
				ids = append(ids, id)
			}
		}
	}
	if len(ids) == 0 {
		return nil
	}
	found, err := read(ids)
	if err != nil {
		return err
	}
	known := map[outmill.JoinID]*JoinState{}
	for _, join := range found {
		known[join.ID] = join
	}
	for _, id := range ids {
		if known[id] == nil {
			return fmt.Errorf("%w: %s", roles.ErrUnknownJoin, id)
		}
		if err := known[id].takes(wanted[id]); err != nil {
			return err
		}
	}
	return nil
}

// LateStep is a message that AttachStep makes a step. The store reads it in the transaction
// that locks the message's records and the join.
type LateStep struct {
	// Found says that the record exists; Waits, that it waits for a join; Member, that it is
	// already a step of the join.
	Found, Waits, Member bool
	// Open, Acked and Dead count the records of the message.
	Open, Acked, Dead int
}

// Check returns an error if the message cannot become a step of the join. attach is false
// if it is a step already. retain is the store's setting.
func (s LateStep) Check(message outmill.WorkItemID, join *JoinState, retain time.Duration) (attach bool, err error) {
	switch {
	case !s.Found || retain <= 0:
		return false, fmt.Errorf("%w: %s", roles.ErrUnknownMessage, message)
	case s.Waits:
		return false, ErrWaitIsNoStep
	case s.Member:
		return false, nil
	}
	return true, join.takes(1)
}
