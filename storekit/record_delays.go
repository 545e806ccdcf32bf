package storekit

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
)

// delays reads the delay that Watermill's components/delay keeps in a context. The context
// key is private to that package. So its publisher decorator reads the delay, with a
// temporary message, which leaves the user's message unchanged.
type delays struct{ decorated message.Publisher }

func newDelays() (*delays, error) {
	decorated, err := delay.NewPublisher(discard{}, delay.PublisherConfig{AllowNoDelay: true})
	return &delays{decorated}, err
}

// apply returns the message, or a copy with a delay in its metadata: that of the message's
// own context, or else otherwise. A delay that the metadata already has takes precedence.
func (d *delays) apply(msg *message.Message, otherwise message.Metadata) *message.Message {
	if msg.Metadata.Get(delay.DelayedForKey) != "" {
		return msg
	}
	found := d.of(msg.Context())
	if len(found) == 0 {
		found = otherwise
	}
	if len(found) == 0 {
		return msg
	}
	delayed := msg.Copy()
	for name, value := range found {
		delayed.Metadata.Set(name, value)
	}
	return delayed
}

// of returns the delay of ctx as metadata.
func (d *delays) of(ctx context.Context) message.Metadata {
	if ctx == nil || ctx == context.Background() {
		return nil
	}
	probe := &message.Message{Metadata: message.Metadata{}}
	probe.SetContext(ctx)
	if err := d.decorated.Publish("", probe); err != nil {
		return nil
	}
	return probe.Metadata
}

type discard struct{}

func (discard) Publish(string, ...*message.Message) error { return nil }
func (discard) Close() error                              { return nil }
