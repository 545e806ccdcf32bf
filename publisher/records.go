package publisher

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
)

// records makes the records of a call, and collects all errors of the messages themselves.
// The store checks the limits before it writes.
func (p *Publisher) records(base context.Context, topic string, messages []*message.Message) ([]*outmill.Record, error) {
	made, err := p.maker.Of(base, topic, messages)
	errs := []error{err}
	for i, msg := range messages {
		if p.cfg.RequirePayload && msg != nil && msg.Payload == nil {
			errs = append(errs, &outmill.InvalidRecordError{Index: i, Field: "payload",
				Reason: "is nil, and publisher.Config.RequirePayload is set"})
		}
	}
	return made, errors.Join(errs...)
}
