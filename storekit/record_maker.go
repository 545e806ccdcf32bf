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

// NewRecordMaker returns a RecordMaker. delaysInMetadata says that Watermill's delay in the
// metadata of a message counts, no matter who has put it there.
func NewRecordMaker(delaysInMetadata bool) (*RecordMaker, error) {
	delays, err := newDelays(delaysInMetadata)
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
		record, err := m.one(topic, msg, ofBase)
		EachInvalid(err, func(invalid *outmill.InvalidRecordError) { invalid.Index = i })
		if list[i] = record; err != nil {
			errs = append(errs, err)
		}
	}
	return list, errors.Join(errs...)
}

func (m *RecordMaker) one(topic string, msg *message.Message, ofBase watermillDelay) (*outmill.Record, error) {
	if msg == nil {
		return RecordOf(topic, nil)
	}
	return recordOf(topic, msg, m.delays.forMessage(msg, ofBase))
}
