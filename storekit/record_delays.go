package storekit

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/components/delay"
	"github.com/ThreeDotsLabs/watermill/message"
)

// delays finds the delay of Watermill's components/delay that the program has given to a message.
//
// A delay in a context is the program's own: no message brings a context along. A delay in the
// metadata may have come with the message, so it counts only where trusted is set, or where it is
// the one of the context, as delay.NewPublisher writes it.
type delays struct {
	// decorated reads the delay of a context, whose key is private to that package. It writes to a
	// temporary message, which leaves the user's message unchanged.
	decorated message.Publisher
	trusted   bool
	// key is the key that decorated asks a context for; nil is unknown.
	key any
}

// watermillDelay is Watermill's delay of a message, as that package writes it.
type watermillDelay struct {
	delayedFor, delayedUntil string
	// written says that the metadata of the message has this delay.
	written bool
}

func newDelays(trusted bool) (*delays, error) {
	decorated, err := delay.NewPublisher(discard{}, delay.PublisherConfig{AllowNoDelay: true})
	if err != nil {
		return nil, err
	}
	d := &delays{decorated: decorated, trusted: trusted}
	d.of(asked{context.Background(), &d.key})
	return d, nil
}

// asked notes what a context is asked for.
type asked struct {
	context.Context
	key *any
}

func (a asked) Value(key any) any {
	*a.key = key
	return nil
}

// forMessage returns the delay of the message: a trusted one of its metadata, else that of its
// context, else otherwise.
func (d *delays) forMessage(msg *message.Message, otherwise watermillDelay) watermillDelay {
	in := delayIn(msg.Metadata)
	in.written = in != watermillDelay{}
	if d.trusted && in.delayedFor != "" {
		return in
	}
	found := d.of(msg.Context())
	if found == (watermillDelay{}) {
		found = otherwise
	}
	switch {
	case found == watermillDelay{}:
		if d.trusted {
			return in
		}
	case d.trusted, found.delayedFor == in.delayedFor && found.delayedUntil == in.delayedUntil:
		found.written = true
	}
	return found
}

// of returns the delay of ctx.
func (d *delays) of(ctx context.Context) watermillDelay {
	// Most contexts have no delay, and to ask that package takes memory.
	if ctx == nil || ctx == context.Background() || d.key != nil && ctx.Value(d.key) == nil {
		return watermillDelay{}
	}
	probe := &message.Message{Metadata: message.Metadata{}}
	probe.SetContext(ctx)
	if err := d.decorated.Publish("", probe); err != nil {
		return watermillDelay{}
	}
	return delayIn(probe.Metadata)
}

func delayIn(metadata message.Metadata) watermillDelay {
	return watermillDelay{delayedFor: metadata[delay.DelayedForKey], delayedUntil: metadata[delay.DelayedUntilKey]}
}

type discard struct{}

func (discard) Publish(string, ...*message.Message) error { return nil }
func (discard) Close() error                              { return nil }
