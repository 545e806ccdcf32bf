package joins

import (
	"encoding/json"
	"fmt"
	"maps"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// payloadVersion increases when older programs can no longer read new payloads.
const payloadVersion = 1

// payload is the payload of a message on Topic, as JSON.
type payload struct {
	Version             int            `json:"version"`
	Join                outmill.JoinID `json:"join"`
	FailIfAnyStepFailed bool           `json:"fail_if_any_step_failed,omitempty"`
	Seal                bool           `json:"seal,omitempty"`
	ExpectedSteps       int            `json:"expected_steps,omitempty"`
	OnComplete          *next          `json:"on_complete,omitempty"`
	OnFail              *next          `json:"on_fail,omitempty"`
}

type next struct {
	Topic    string            `json:"topic"`
	Payload  []byte            `json:"payload"` // null is a nil payload
	Metadata map[string]string `json:"metadata,omitempty"`
	// Instructions are here because their signature would mean nothing to the process that reads them.
	Instructions map[outmill.Instruction]string `json:"instructions,omitempty"`
}

func encode(wait WaitRequest) message.Payload {
	// No value in it can make Marshal fail.
	bytes, _ := json.Marshal(payload{
		Version:             payloadVersion,
		Join:                wait.Join,
		FailIfAnyStepFailed: wait.FailIfAnyStepFailed,
		Seal:                wait.Seal,
		ExpectedSteps:       wait.ExpectedSteps,
		OnComplete:          wait.OnComplete.encoded(),
		OnFail:              wait.OnFail.encoded(),
	})
	return bytes
}

func (n Next) encoded() *next {
	switch {
	case n.isNone():
		return nil
	case n.Message == nil:
		return &next{Topic: n.Topic, Payload: []byte{}}
	}
	// Wait has refused a message with an instruction that is unfit.
	told, _ := outmill.InstructionsOf(n.Message)
	return &next{Topic: n.Topic, Payload: n.Message.Payload, Metadata: storekit.DataOf(n.Message), Instructions: told}
}

// decode returns a permanent error, except for a payload of a newer version of this
// program, which another instance may be able to read.
func decode(bytes []byte) (payload, error) {
	var p payload
	err := json.Unmarshal(bytes, &p)
	switch {
	case p.Version > payloadVersion:
		return p, fmt.Errorf("outmill: message on %s: version %d of the payload is newer than this program, which reads %d: update it", Topic,
			p.Version, payloadVersion)
	case err != nil:
		return p, outmill.Permanent(fmt.Errorf("outmill: message on %s: payload: %w", Topic, err))
	case p.Version < 1 || p.Join.IsZero():
		return p, outmill.Permanent(fmt.Errorf("outmill: message on %s: the payload has no version or no join: "+
			"publish there only with joins.Wait", Topic))
	}
	return p, nil
}

// record makes the record that follows the join, or nil for none. wait is the message on
// Topic.
func (p payload) record(join roles.Join, wait *message.Message) (*outmill.Record, error) {
	follows := p.OnFail
	if join.Status == roles.JoinCompleted {
		follows = p.OnComplete
	}
	if follows == nil {
		return nil, nil
	}
	// A message without a UUID gets a new one.
	msg := message.NewMessage("", follows.Payload)
	for _, name := range inherited {
		msg.Metadata[name] = wait.Metadata.Get(name)
	}
	maps.Copy(msg.Metadata, join.Metadata)
	maps.Copy(msg.Metadata, follows.Metadata)
	describe(msg.Metadata, join)
	return storekit.RecordInstructed(follows.Topic, msg, follows.Instructions)
}
