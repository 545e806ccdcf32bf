package joinstest

import (
	"fmt"
	"time"

	"github.com/outmill/outmill/storetest/internal/suite"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// joinModel models joins as the contract describes them, next to the model of the queue. The
// outcomes of a message's records decide the status of its step.
type joinModel struct {
	joins    []*modelJoin
	messages []*modelMessage
	waiters  []*modelWaiter
}

// modelJoin is a join. Its counters agree with its steps.
type modelJoin struct {
	roles.Join
	steps []*modelStep
	// deadline and ended are times of the model.
	deadline, ended time.Duration
	hasDeadline     bool
	// decided says whether the join was decided when the walk last checked it.
	decided bool
}

// modelMessage is a message that is or may become a step, with all its records, including
// deleted ones.
type modelMessage struct {
	id    outmill.WorkItemID
	parts []*modelPart
	// arguable says that a group was dropped after it had settled a record. The contract does
	// not define the outcome.
	arguable bool
}

// modelPart is one record of a message, and its fate.
type modelPart struct {
	it   *suite.Item
	fate fate
}

// fate is the reason why the store no longer has a record.
type fate int

const (
	stored fate = iota
	ackedAway
	deletedAway
	dropped
)

type modelStep struct {
	message  *modelMessage
	status   roles.StepStatus
	reported bool
}

// modelWaiter is a record that waits for a join.
type modelWaiter struct {
	it   *suite.Item
	join *modelJoin
}

// outcome returns the status that the message gives its step.
func (m *modelMessage) outcome() roles.StepStatus {
	left, acked := 0, 0
	for _, p := range m.parts {
		switch {
		case p.fate == dropped:
			continue
		case p.fate == deletedAway || p.fate == stored && p.it.Status == outmill.StatusDead:
			return roles.StepFailed
		case p.fate == ackedAway || p.it.Status == outmill.StatusProcessed:
			acked++
		}
		left++
	}
	switch {
	case left == 0:
		return roles.StepFailed
	case acked == left:
		return roles.StepCompleted
	}
	return roles.StepPending
}

func (s *modelStep) String() string {
	return fmt.Sprintf("%s %s (reported %t, arguable %t)", s.message.id, s.status, s.reported, s.message.arguable)
}

func (j *modelJoin) pending() bool { return j.Status == roles.JoinPending }

func (j *modelJoin) step(id outmill.WorkItemID) *modelStep {
	for _, s := range j.steps {
		if s.message.id == id {
			return s
		}
	}
	return nil
}

// room returns the number of steps that the join still accepts.
func (j *modelJoin) room() int {
	if j.Unsealed {
		return 1000
	}
	return j.ExpectedSteps - len(j.steps)
}

// follow sets the status of the steps by their messages, unless that is arguable, and updates
// the counters.
func (j *modelJoin) follow() {
	if j.pending() {
		for _, s := range j.steps {
			if !s.reported && !s.message.arguable {
				s.status = s.message.outcome()
			}
		}
	}
	j.count()
}

func (j *modelJoin) count() {
	j.CompletedSteps, j.FailedSteps = 0, 0
	for _, s := range j.steps {
		switch s.status {
		case roles.StepCompleted:
			j.CompletedSteps++
		case roles.StepFailed:
			j.FailedSteps++
		case roles.StepPending:
		}
	}
}

// verdict returns the status and the reason with which the join would end now.
func (j *modelJoin) verdict(failIfAny bool, now time.Duration) (roles.JoinStatus, string) {
	state := storekit.JoinState{Join: j.Join, Late: j.hasDeadline && j.deadline <= now}
	return state.Decide(roles.FinishRequest{FailIfAnyStepFailed: failIfAny})
}

func (j *modelJoin) end(status roles.JoinStatus, reason string, now time.Duration) {
	j.Status, j.Reason, j.ended = status, reason, now
}

func (j *modelJoin) String() string {
	s := fmt.Sprintf("join %s %s %s/%d expects %d (unsealed %t): %d completed, %d failed\n",
		j.ID, j.Status, j.Policy, j.Quorum, j.ExpectedSteps, j.Unsealed, j.CompletedSteps, j.FailedSteps)
	for _, step := range j.steps {
		s += "  " + step.String() + "\n"
	}
	return s
}

func (m *joinModel) String() string {
	s := ""
	for _, j := range m.joins {
		s += j.String()
	}
	return s
}

// appended notes the records of a message. The first record has the id of the message.
func (m *joinModel) appended(items []*suite.Item) *modelMessage {
	msg := &modelMessage{id: items[0].ID}
	for _, it := range items {
		msg.parts = append(msg.parts, &modelPart{it: it})
	}
	m.messages = append(m.messages, msg)
	return msg
}

func (m *joinModel) attach(j *modelJoin, msg *modelMessage) {
	j.steps = append(j.steps, &modelStep{message: msg, status: roles.StepPending})
}

// fates notes the fate of records that the queue no longer has; gone is the reason.
func (m *joinModel) fates(here func(*suite.Item) bool, gone fate) {
	for _, msg := range m.messages {
		for _, p := range msg.parts {
			if p.fate == stored && !here(p.it) {
				p.fate = gone
				settled := p.it.Status == outmill.StatusProcessed || p.it.Status == outmill.StatusDead
				switch {
				case gone == dropped && settled:
					msg.arguable = true
				case p.it.Status == outmill.StatusProcessed:
					p.fate = ackedAway
				}
			}
		}
	}
}

// drops notes a drop of the group for records that the queue no longer had before.
func (m *joinModel) drops(name string) {
	for _, msg := range m.messages {
		for _, p := range msg.parts {
			if p.it.Group == name && p.fate != stored && p.fate != dropped {
				msg.arguable = true
			}
		}
	}
}
