package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
)

// envelope is the envelope that Watermill's forwarder.Publisher puts around a message.
type envelope struct {
	DestinationTopic string            `json:"destination_topic"`
	UUID             string            `json:"uuid"`
	Payload          []byte            `json:"payload"`
	Metadata         map[string]string `json:"metadata"`
}

// unwrap never repeats an error of encoding/json, because it contains parts of the payload.
func unwrap(msg *message.Message) (topic string, inner *message.Message, err error) {
	var e envelope
	if json.Unmarshal(msg.Payload, &e) != nil {
		return "", nil, errors.New("is no envelope of Watermill's forwarder")
	}
	if e.DestinationTopic == "" {
		return "", nil, errors.New("is no envelope of Watermill's forwarder, or one without a destination topic")
	}
	inner = message.NewMessage(e.UUID, e.Payload)
	if e.Metadata != nil {
		inner.Metadata = e.Metadata
	}
	inner.SetContext(msg.Context())
	return e.DestinationTopic, inner, nil
}

// refused says which message cannot be moved, and why. It never shows the
// payload.
type refused struct {
	note   note
	table  string
	reason error
}

func (r *refused) Error() string {
	return fmt.Sprintf("%s: the message %s; its row is still in %s: repair it, or pass -skip-malformed to leave it there and go on", r.note,
		r.reason, r.table)
}

func (r *refused) Unwrap() error { return r.reason }

// prepare makes the message to publish.
func (m *mover) prepare(msg *message.Message, n note) (topic string, out *message.Message, err error) {
	if n.defect != "" {
		return "", nil, errors.New("cannot be read: " + n.defect)
	}
	topic, out = n.topic, msg
	if m.options.enveloped {
		if topic, out, err = unwrap(msg); err != nil {
			return "", nil, err
		}
	}
	if key := out.Metadata[m.options.key]; m.options.key != "" && key != "" && out.Metadata[outmill.MetadataKey] == "" {
		outmill.SetKey(out, key)
	}
	// The delay counts from the publish, and not from the move.
	if out.Metadata[delay.DelayedUntilKey] != "" {
		delete(out.Metadata, delay.DelayedForKey)
	}
	if !m.atomic {
		outmill.SetDedupKey(out, n.dedupKey())
	}
	return topic, out, nil
}
