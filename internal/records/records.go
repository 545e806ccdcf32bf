// Package records makes records of messages, for all that publish.
package records

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// Maker makes records. It may be used concurrently.
type Maker struct{ delays *delays }

// NewMaker makes a Maker.
func NewMaker() (*Maker, error) {
	delays, err := newDelays()
	return &Maker{delays}, err
}

// Of makes the records of a call, and collects all that is wrong with the messages
// themselves, each with its place in the call. The limits are for the store to check,
// before it writes. Watermill's delay is that of a message's own context, or else of
// base, which may be nil.
func (m *Maker) Of(base context.Context, topic string, messages []*message.Message) ([]*outmill.Record, error) {
	list := make([]*outmill.Record, len(messages))
	var errs []error
	ofBase := m.delays.of(base)
	for i, msg := range messages {
		if msg != nil {
			msg = m.delays.apply(msg, ofBase)
		}
		record, err := storekit.RecordOf(topic, msg)
		var invalid *outmill.InvalidRecordError
		if errors.As(err, &invalid) {
			invalid.Index = i
		}
		list[i], errs = record, append(errs, err)
	}
	return list, errors.Join(errs...)
}
