package storekit

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
)

// RecordMaker makes records of messages for a publisher. It may be used concurrently.
type RecordMaker struct{ delays *delays }

// NewRecordMaker returns a RecordMaker.
func NewRecordMaker() (*RecordMaker, error) {
	delays, err := newDelays()
	return &RecordMaker{delays}, err
}

// Of makes the records of a call, and collects all that is wrong with the messages
// themselves, each with its place in the call. The limits are for the store to check,
// before it writes. Watermill's delay is that of a message's own context, or else of
// base, which may be nil.
func (m *RecordMaker) Of(base context.Context, topic string, messages []*message.Message) ([]*outmill.Record, error) {
	list := make([]*outmill.Record, len(messages))
	var errs []error
	ofBase := m.delays.of(base)
	for i, msg := range messages {
		if msg != nil {
			msg = m.delays.apply(msg, ofBase)
		}
		record, err := RecordOf(topic, msg)
		var invalid *outmill.InvalidRecordError
		if errors.As(err, &invalid) {
			invalid.Index = i
		}
		list[i], errs = record, append(errs, err)
	}
	return list, errors.Join(errs...)
}
