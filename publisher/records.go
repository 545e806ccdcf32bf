package publisher

import (
	"context"
	"errors"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
)

// records makes the records of a call, and collects all that is wrong with the
// messages before anything is written.
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
	for i, msg := range messages {
		if msg == nil {
			refuse(i, &outmill.InvalidRecordError{Field: "message", Reason: "is nil"})
			continue
		}
		if p.cfg.RequirePayload && msg.Payload == nil {
			refuse(i, &outmill.InvalidRecordError{Field: "payload", Reason: "is nil, and publisher.Config.RequirePayload is set"})
		}
		rec, err := outmill.RecordOf(topic, p.delays.apply(base, msg))
		if err != nil {
			refuse(i, err)
		}
		records[i] = rec
	}
	return records, errors.Join(errs...)
}

// delays reads the delay that Watermill's components/delay keeps in a context.
// The key is that package's own, so its publisher decorator does the reading,
// on a message that is thrown away: the user's message stays as it is.
type delays struct{ decorated message.Publisher }

func newDelays() (*delays, error) {
	decorated, err := delay.NewPublisher(nowhere{}, delay.PublisherConfig{AllowNoDelay: true})
	return &delays{decorated}, err
}

func (d *delays) apply(base context.Context, msg *message.Message) *message.Message {
	ctx := msg.Context()
	if ctx == context.Background() {
		if base == nil {
			return msg
		}
		ctx = base
	}
	if msg.Metadata.Get(delay.DelayedForKey) != "" {
		return msg
	}
	probe := message.NewMessageWithContext(ctx, "", nil)
	if err := d.decorated.Publish("", probe); err != nil || len(probe.Metadata) == 0 {
		return msg
	}
	delayed := msg.Copy()
	for name, value := range probe.Metadata {
		delayed.Metadata.Set(name, value)
	}
	return delayed
}

type nowhere struct{}

func (nowhere) Publish(string, ...*message.Message) error { return nil }
func (nowhere) Close() error                              { return nil }
