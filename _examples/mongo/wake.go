package main

import (
	"context"
	"fmt"
	"time"

	"github.com/outmill/outmill/_examples/internal/example"
	outmillmongo "github.com/outmill/outmill/mongo"
)

// wokenWithin is the longest time between a commit and the change stream's report.
const wokenWithin = 30 * time.Second

// wakes are the topics that the change stream reports.
type wakes chan string

// listen returns when the change stream is open. Each subscriber and each forwarder listens in the
// same way, in its own process, so that it need not wait for its next poll after a commit.
func listen(ctx context.Context, store *outmillmongo.Store) (wakes, error) {
	heard := make(wakes, 100)
	store.Wake(ctx, func(topic string) {
		select {
		case heard <- topic:
		default: // A hint may be lost, because readers poll all the same.
		}
	})
	// A new stream may have missed any topic, so it reports all of them once.
	return heard, heard.wait(ctx, "")
}

// wait waits until the stream has reported the topic.
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

// step is an effect of a commit.
func (w wakes) step() example.Step {
	return example.Step{
		Happens: "change stream: woken, because something was committed in the topic " + example.Topic,
		Do:      func(ctx context.Context) error { return w.wait(ctx, example.Topic) },
	}
}
