package main

import (
	"context"
	"fmt"
	"time"

	"github.com/outmill/outmill/_examples/internal/example"
	outmillmongo "github.com/outmill/outmill/mongo"
)

// wokenWithin is how long the change stream may take.
const wokenWithin = 30 * time.Second

// wakes are the topics that the change stream tells of.
type wakes chan string

// listen returns when the change stream is there. Each subscriber and each forwarder
// listens in the same way, in whatever process it runs, and so need not wait for its
// next poll when a transaction is committed.
func listen(ctx context.Context, store *outmillmongo.Store) (wakes, error) {
	heard := make(wakes, 100)
	store.Wake(ctx, func(topic string) {
		select {
		case heard <- topic:
		default: // A hint may be lost, because readers poll all the same.
		}
	})
	// A stream that has begun may have missed any topic, and says so.
	return heard, heard.wait(ctx, "")
}

// wait waits until the stream has told of the topic.
func (w wakes) wait(ctx context.Context, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, wokenWithin)
	defer cancel()
	for {
		select {
		case heard := <-w:
			if heard == topic {
				return nil
			}
		case <-ctx.Done():
			return fmt.Errorf("the change stream has told nothing of the topic %q: %w", topic, ctx.Err())
		}
	}
}

// step is what comes of a commit.
func (w wakes) step() example.Step {
	return example.Step{
		Happens: "change stream: woken, because something was committed in the topic " + example.Topic,
		Do:      func(ctx context.Context) error { return w.wait(ctx, example.Topic) },
	}
}
