package joins

import (
	"context"
	"errors"
	"fmt"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// metadataHome is metadata of a local join: the home of its step.
const metadataHome = "outmill_join_home"

// local is the join that waits, in the store of a remote step, for the message alone. Its
// counts are the outcome of the step, and its end says that the home has counted the step.
type local struct {
	home string
	join outmill.JoinID
	step outmill.WorkItemID
}

func localID(step outmill.WorkItemID) outmill.JoinID { return outmill.JoinID(step) }

// start begins the join.
func (l local) start(ctx context.Context, store roles.Joins) error {
	return store.StartJoin(ctx, &Join{
		ID: localID(l.step), GroupingKey: l.join.String(), ExpectedSteps: 1,
		Metadata: map[string]string{metadataHome: l.home},
	})
}

// outcome returns the state of the message, or roles.ErrUnknownJoin. It refuses a join of
// that id that is not this one, because a message that names it would end the join of
// somebody else.
func (l local) outcome(ctx context.Context, store roles.Joins) (roles.StepStatus, error) {
	found, err := store.GetJoin(ctx, localID(l.step))
	switch {
	case err != nil:
		return "", err
	case found.Metadata[metadataHome] != l.home || found.GroupingKey != l.join.String():
		return "", outmill.Permanent(fmt.Errorf("%w: join %s is not of a step of join %s in %q", ErrForeignOutcome,
			localID(l.step), l.join, l.home))
	case found.CompletedSteps > 0:
		return roles.StepCompleted, nil
	case found.FailedSteps > 0 || found.Status != roles.JoinPending:
		return roles.StepFailed, nil
	}
	return roles.StepPending, nil
}

// end ends the join, so that its store may delete it, and reports whether it has ended. It
// has not if a requeue has taken a failed step back.
func (l local) end(ctx context.Context, store roles.Joins) (bool, error) {
	result, err := store.FinishJoin(ctx, localID(l.step), roles.FinishRequest{FailIfAnyStepFailed: true})
	if errors.Is(err, roles.ErrUnknownJoin) {
		return true, nil
	}
	return result.Join.Status != roles.JoinPending, err
}
