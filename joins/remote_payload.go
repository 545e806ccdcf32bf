package joins

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// remotePayload is the payload of a message on RemoteTopic, as JSON.
type remotePayload struct {
	Version int            `json:"version"`
	Join    outmill.JoinID `json:"join"`
	// Step is the id of the step in the home. It is also the id of the join in the other store
	// that waits for the message alone: see local.
	Step outmill.WorkItemID `json:"step"`

	Store     string            `json:"store"`
	Topic     string            `json:"topic"`
	MessageID string            `json:"message_id"`
	Payload   []byte            `json:"payload"` // null is a nil payload
	Metadata  map[string]string `json:"metadata,omitempty"`
	// Instructions are here because their signature would mean nothing to the process that reads them.
	Instructions map[outmill.Instruction]string `json:"instructions,omitempty"`
}

// outcomePayload is the payload of a message on OutcomeTopic, as JSON.
type outcomePayload struct {
	Version int                `json:"version"`
	Home    string             `json:"home"`
	Join    outmill.JoinID     `json:"join"`
	Step    outmill.WorkItemID `json:"step"`
	// Record is the record of the step in the home whose handler has sent the message. It
	// differs from Step if several groups read RemoteTopic.
	Record outmill.WorkItemID `json:"record"`
}

func encodeJSON(payload any) []byte {
	// No value in it can make Marshal fail.
	bytes, _ := json.Marshal(payload)
	return bytes
}

// errNewer says that a newer program has written the payload, which another instance may be
// able to read.
var errNewer = errors.New("the payload is newer than this program: update it")

func decodeRemote(bytes []byte) (p remotePayload, err error) {
	err = json.Unmarshal(bytes, &p)
	return p, judgePayload(RemoteTopic, p.Version, err,
		p.Join.IsZero() || p.Step.IsZero() || checkStoreName(p.Store) != nil)
}

func decodeOutcome(bytes []byte) (p outcomePayload, err error) {
	err = json.Unmarshal(bytes, &p)
	return p, judgePayload(OutcomeTopic, p.Version, err,
		p.Join.IsZero() || p.Step.IsZero() || p.Record.IsZero() || checkStoreName(p.Home) != nil)
}

// judgePayload returns errNewer, or a permanent error for a payload that no version has.
func judgePayload(topic string, version int, err error, incomplete bool) error {
	switch {
	case version > payloadVersion:
		return fmt.Errorf("outmill: message on %s: version %d of the payload: %w", topic, version, errNewer)
	case err != nil:
		return outmill.Permanent(fmt.Errorf("outmill: message on %s: payload: %w", topic, err))
	case version < 1 || incomplete:
		return outmill.Permanent(fmt.Errorf("outmill: message on %s: the payload lacks a version, a join, a step or a store: "+
			"only package joins publishes there", topic))
	}
	return nil
}

// record makes the record of the message in the other store. It refuses what that store
// would refuse, except for the store's own limit of the payload's size.
func (p remotePayload) record() (*outmill.Record, error) {
	msg := message.NewMessage(p.MessageID, p.Payload)
	msg.Metadata = p.Metadata
	rec, err := storekit.RecordInstructed(p.Topic, msg, p.Instructions)
	if err != nil {
		return nil, err
	}
	var errs []error
	if len(rec.Joins) > 0 || !rec.WaitsFor.IsZero() {
		errs = append(errs, invalid(-1, "joins", "are set on a remote step: it is a step of the join that sends it, and of no other"))
	}
	if slices.Contains(storekit.JoinTopics(), p.Topic) {
		errs = append(errs, invalid(-1, "topic", fmt.Sprintf("is %s: package joins publishes there itself", p.Topic)))
	}
	rec.Joins, rec.WaitsFor = []outmill.JoinID{localID(p.Step)}, outmill.JoinID{}
	errs = append(errs, storekit.CheckRecords([]*outmill.Record{rec}, 0))
	return rec, errors.Join(errs...)
}

// outcome makes the record that brings the outcome home. It is due when the local join is
// decided, or else after the pause of a check.
func (p remotePayload) outcome(delivery outmill.DeliveryInfo, step *outmill.Record) *outmill.Record {
	return &outmill.Record{
		ID: outmill.NewWorkItemID(), MessageID: p.Step.String(), Topic: OutcomeTopic, WaitsFor: localID(p.Step),
		Payload:       encodeJSON(outcomePayload{payloadVersion, delivery.Store, p.Join, p.Step, delivery.ID}),
		CorrelationID: step.CorrelationID, TraceParent: step.TraceParent, TraceState: step.TraceState,
	}
}
