package storekit

import (
	"fmt"
	"time"

	"github.com/outmill/outmill"
)

// JoinState is a join as a store reads it, by the database's clock.
type JoinState struct {
	Join
	// Late: the deadline has passed. DeadlineIn is the time until the deadline.
	Late       bool
	DeadlineIn time.Duration
	// Members is the number of steps, where the store has counted them.
	Members int
}

// Decide returns how the join ends if it is finished now: JoinPending where that is not
// decided yet.
func (j *JoinState) Decide(request FinishRequest) (status JoinStatus, reason string) {
	needed := 1
	switch j.Policy {
	case JoinQuorum:
		needed = j.Quorum
		fallthrough
	case JoinAny:
		if j.CompletedSteps >= needed {
			return JoinCompleted, ""
		}
		if !j.Unsealed && j.ExpectedSteps-j.FailedSteps < needed {
			return JoinFailed, ReasonNoQuorum
		}
	default:
		if !j.Unsealed && j.CompletedSteps+j.FailedSteps >= j.ExpectedSteps {
			if request.FailIfAnyStepFailed && j.FailedSteps > 0 {
				return JoinFailed, ReasonStepFailed
			}
			return JoinCompleted, ""
		}
	}
	switch {
	case j.Late && j.CompleteAtDeadline:
		return JoinCompleted, ReasonDeadline
	case j.Late:
		return JoinFailed, ReasonDeadline
	}
	return JoinPending, ""
}

// Decided tells whether the join has ended, or would end if it is finished now.
func (j *JoinState) Decided() bool {
	status, _ := j.Decide(FinishRequest{})
	return j.Status != JoinPending || status != JoinPending
}

// result is the answer to a call that does not end the join.
func (j *JoinState) result() FinishResult {
	result := FinishResult{Join: j.Join}
	if j.Status == JoinPending && !j.Deadline.IsZero() {
		result.DeadlineIn = j.DeadlineIn
	}
	return result
}

// checkSeal refuses a number of steps that the join cannot be sealed with, whatever steps
// it has.
func (j *JoinState) checkSeal(expectedSteps int) error {
	switch {
	case expectedSteps < 0 || expectedSteps > MaxJoinSteps:
		return &outmill.InvalidRecordError{Index: -1, Field: "expected steps",
			Reason: fmt.Sprintf("is %d: want 0 to %d", expectedSteps, MaxJoinSteps)}
	case j.Status != JoinPending:
		return fmt.Errorf("%w: %s is %s", ErrJoinFinished, j.ID, j.Status)
	case !j.Unsealed && j.ExpectedSteps != expectedSteps:
		return &outmill.InvalidRecordError{Index: -1, Field: "expected steps",
			Reason: fmt.Sprintf("is %d: the join is sealed with %d", expectedSteps, j.ExpectedSteps)}
	}
	return nil
}

// takes refuses n more steps of a join that has ended or is full. The steps of a join
// that is unsealed are not counted.
func (j *JoinState) takes(n int) error {
	switch {
	case j.Status != JoinPending:
		return fmt.Errorf("%w: %s is %s", ErrJoinFinished, j.ID, j.Status)
	case !j.Unsealed && j.Members+n > j.ExpectedSteps:
		return fmt.Errorf("%w: %s has %d of %d steps, and would get %d more", ErrTooManySteps, j.ID, j.Members, j.ExpectedSteps, n)
	}
	return nil
}

// CheckSteps refuses records that are to be steps of a join that is not there, has ended
// or is full. read returns the joins that exist, with Members where they are sealed; a store
// calls CheckSteps before it writes, so that the caller's transaction stays usable.
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
			return fmt.Errorf("%w: %s", ErrUnknownJoin, id)
		}
		if err := known[id].takes(wanted[id]); err != nil {
			return err
		}
	}
	return nil
}

// LateStep is a message that AttachStep is to make a step, as a store reads it in the
// transaction that holds the message's records and the join.
type LateStep struct {
	// Found: the record is there. Waits: it waits for a join. Member: it is a step of the
	// join already.
	Found, Waits, Member bool
	// Open, Acked and Dead count the records of the message.
	Open, Acked, Dead int
}

// Check refuses a message that cannot become a step of the join. attach is false for one
// that is a step already. retain is the store's setting.
func (s LateStep) Check(message outmill.WorkItemID, join *JoinState, retain time.Duration) (attach bool, err error) {
	switch {
	case !s.Found || retain <= 0:
		return false, fmt.Errorf("%w: %s", ErrUnknownMessage, message)
	case s.Waits:
		return false, ErrWaitIsNoStep
	case s.Member:
		return false, nil
	}
	return true, join.takes(1)
}
