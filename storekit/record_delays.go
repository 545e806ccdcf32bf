package storekit

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
)

// delays reads the delay that Watermill's components/delay keeps in a context.
// The key is that package's own, so its publisher decorator does the reading,
// on a message that is thrown away: the user's message stays as it is.
type delays struct{ decorated message.Publisher }

func newDelays() (*delays, error) {
	decorated, err := delay.NewPublisher(discard{}, delay.PublisherConfig{AllowNoDelay: true})
	return &delays{decorated}, err
}

// apply returns the message, or a copy that has the delay of its own context,
// or else the given one, in its metadata. A delay that is there already wins.
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

// of returns the metadata that say the delay of ctx.
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
