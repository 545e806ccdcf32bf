package engine

import (
	"fmt"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// resultOf returns the result of a call that does not end the join.
func resultOf(j *storekit.JoinState) roles.FinishResult {
	result := roles.FinishResult{Join: j.Join}
	if j.Status == roles.JoinPending && !j.Deadline.IsZero() {
		result.DeadlineIn = j.DeadlineIn
	}
	return result
}

// checkSeal refuses a number of steps with which the join cannot be sealed, regardless of
// its present steps.
func checkSeal(j *storekit.JoinState, expectedSteps int) error {
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
func takes(j *storekit.JoinState, n int) error {
	switch {
	case j.Status != roles.JoinPending:
		return fmt.Errorf("%w: %s is %s", roles.ErrJoinFinished, j.ID, j.Status)
	case !j.Unsealed && j.Members+n > j.ExpectedSteps:
		return fmt.Errorf("%w: %s has %d of %d steps, and would get %d more", roles.ErrTooManySteps, j.ID, j.Members, j.ExpectedSteps, n)
	}
	return nil
}

// checkSteps refuses records that name a join that does not exist, has ended or is full.
// read returns the joins that exist, with Members if they are sealed. An append calls
// it before it writes, so that the caller's transaction stays usable.
func checkSteps(records []*outmill.Record, read func(ids []outmill.JoinID) ([]*storekit.JoinState, error)) error {
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
	known := map[outmill.JoinID]*storekit.JoinState{}
	for _, join := range found {
		known[join.ID] = join
	}
	for _, id := range ids {
		if known[id] == nil {
			return fmt.Errorf("%w: %s", roles.ErrUnknownJoin, id)
		}
		if err := takes(known[id], wanted[id]); err != nil {
			return err
		}
	}
	return nil
}
