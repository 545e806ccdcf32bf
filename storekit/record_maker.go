package storekit

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
)

// RecordMaker turns the messages of a publisher into records. It is safe for concurrent
// use.
type RecordMaker struct{ delays *delays }

// NewRecordMaker returns a RecordMaker.
func NewRecordMaker() (*RecordMaker, error) {
	delays, err := newDelays()
	return &RecordMaker{delays}, err
}

// Of makes the records of a call. It collects the errors of all messages, each with the
// index in the call. The store checks the limits before it writes. Watermill's delay comes
// from the message's own context, or else from base, which may be nil.
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
