package storekit

import (
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// CheckJoin returns an ErrInvalidRecord for every invalid value of a join to start, joined. Stores call it.
func CheckJoin(j *roles.Join) error {
	var errs []error
	invalid := func(bad bool, field, reason string, args ...any) {
		if bad {
			errs = append(errs, &outmill.InvalidRecordError{Index: -1, Field: field, Reason: fmt.Sprintf(reason, args...)})
		}
	}
	named := func(field, reason string) { invalid(reason != "", field, "%s", reason) }
	named("grouping key", checkName(j.GroupingKey))
	named("deadline", checkTime(j.Deadline))
	invalid(j.ExpectedSteps < 1 && !j.Unsealed, "expected steps", "is %d: want 1 or more, or an unsealed join", j.ExpectedSteps)
	invalid(j.ExpectedSteps != 0 && j.Unsealed, "expected steps", "is %d: want 0 for an unsealed join", j.ExpectedSteps)
	invalid(j.ExpectedSteps > roles.MaxJoinSteps, "expected steps", "is %d: want at most %d", j.ExpectedSteps, roles.MaxJoinSteps)
	invalid(j.Timeout < 0, "timeout", "is %s: want 0 (none) or more", j.Timeout)
	invalid(j.Quorum > roles.MaxJoinSteps, "quorum", "is %d: want at most %d", j.Quorum, roles.MaxJoinSteps)
	switch j.Policy {
	case "", roles.JoinAll, roles.JoinAny:
		invalid(j.Quorum != 0, "quorum", "is %d: want 0 without JoinQuorum", j.Quorum)
	case roles.JoinQuorum:
		invalid(j.Quorum < 1 || !j.Unsealed && j.Quorum > j.ExpectedSteps, "quorum", "is %d: want 1 to the number of expected steps", j.Quorum)
	default:
		invalid(true, "policy", "is %q: want all, any or quorum", clip(string(j.Policy)))
	}
	for name, value := range j.Metadata {
		named(fmt.Sprintf("metadata name %q", clip(name)), checkText(name, 0))
		named(fmt.Sprintf("metadata %q", clip(name)), checkText(value, 0))
	}
	return errors.Join(append(errs, checkFollower(j))...)
}

// checkFollower refuses metadata that no message can have, because that error would appear
// only at the end of the join. It also refuses what the setters have told the publish of a message.
func checkFollower(j *roles.Join) error {
	msg := &message.Message{Metadata: j.Metadata}
	told, _ := outmill.InstructionsOf(msg)
	for name := range told {
		return &outmill.InvalidRecordError{Index: -1, Field: fmt.Sprintf("metadata %q", string(name)),
			Reason: "instructs an append: set it on the message that follows the join"}
	}
	rec, err := RecordOf("join", msg)
	if err != nil {
		return err
	}
	return CheckRecords([]*outmill.Record{rec}, 0)
}

// JoinWaitTopic is the topic of the messages that finish joins, which package joins
// publishes and handles. A forwarder does not forward it, unless its Topics name it.
const JoinWaitTopic = "join.wait"

// JoinRemoteTopic and JoinOutcomeTopic are the topics of steps in other stores and of their
// outcomes, which package joins publishes and handles. A forwarder treats them as it treats
// JoinWaitTopic.
const (
	JoinRemoteTopic  = "join.remote"
	JoinOutcomeTopic = "join.outcome"
)

// JoinTopics returns the topics of package joins.
func JoinTopics() []string { return []string{JoinWaitTopic, JoinRemoteTopic, JoinOutcomeTopic} }

// CheckJoinQuery returns an ErrInvalidConfig for every invalid value, joined. Stores call it.
func CheckJoinQuery(q roles.JoinQuery) error {
	switch q.Status {
	case "", roles.JoinPending, roles.JoinCompleted, roles.JoinFailed, roles.JoinCancelled:
	default:
		return fmt.Errorf("%w: JoinQuery.Status is %q: want pending, completed, failed or cancelled", outmill.ErrInvalidConfig,
			clip(string(q.Status)))
	}
	if q.Limit < 0 {
		return fmt.Errorf("%w: JoinQuery.Limit is %d: want 0 (100) or more", outmill.ErrInvalidConfig, q.Limit)
	}
	return nil
}
