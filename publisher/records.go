package publisher

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
)

// records makes the records of a call, and collects all errors of the messages themselves.
// The store checks the limits before it writes.
func (p *Publisher) records(base context.Context, topic string, messages []*message.Message) ([]*outmill.Record, error) {
	made, err := p.maker.Of(base, topic, messages)
	var errs []error
	if err != nil {
		errs = append(errs, err)
	}
	for i, msg := range messages {
		if p.cfg.RequirePayload && msg != nil && msg.Payload == nil {
			errs = append(errs, &outmill.InvalidRecordError{Index: i, Field: "payload",
				Reason: "is nil, and publisher.Config.RequirePayload is set"})
		}
	}
	p.warnOfIgnored(topic, made)
	return made, errors.Join(errs...)
}

// warnOfIgnored logs the first record that keeps Watermill's delay as metadata.
func (p *Publisher) warnOfIgnored(topic string, made []*outmill.Record) {
	for _, rec := range made {
		if rec == nil || rec.Metadata[delay.DelayedForKey] == "" {
			continue
		}
		p.ignored.Do(func() {
			p.log.Error("Warning: a message with Watermill's delay in its metadata is not delayed, because the delay may have come in "+
				"with the message. Use outmill.SetDelay or delay.WithContext, or set publisher.Config.DelaysInMetadata. "+
				"The publisher logs this once", nil, watermill.LogFields{"topic": topic, "message_uuid": rec.MessageID})
		})
		return
	}
}
