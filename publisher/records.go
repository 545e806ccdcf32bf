package publisher

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
)

// records makes the records of a call, and collects all that is wrong with the
// messages themselves. The store checks the limits, before it writes.
func (p *Publisher) records(base context.Context, topic string, messages []*message.Message) ([]*outmill.Record, error) {
	records := make([]*outmill.Record, len(messages))
	var errs []error
	refuse := func(i int, err error) {
		var invalid *outmill.InvalidRecordError
		if errors.As(err, &invalid) {
			invalid.Index = i
		}
		errs = append(errs, err)
	}
	ofBase := p.delays.of(base)
	for i, msg := range messages {
		if msg == nil {
			refuse(i, &outmill.InvalidRecordError{Field: "message", Reason: "is nil"})
			continue
		}
		if p.cfg.RequirePayload && msg.Payload == nil {
			refuse(i, &outmill.InvalidRecordError{Field: "payload", Reason: "is nil, and publisher.Config.RequirePayload is set"})
		}
		rec, err := outmill.RecordOf(topic, p.delays.apply(msg, ofBase))
		if err != nil {
			refuse(i, err)
		}
		records[i] = rec
	}
	return records, errors.Join(errs...)
}
