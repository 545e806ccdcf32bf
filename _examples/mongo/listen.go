package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/_examples/internal/example"
	"github.com/outmill/outmill/subscriber"
)

// wokenWithin is how long a message may take until it counts as lost.
const wokenWithin = 30 * time.Second

// sellAndListen sells while a subscriber reads that looks for messages by itself once
// an hour, at most. A change stream wakes it when a transaction is committed.
func (s *shop) sellAndListen(ctx context.Context, store outmill.Queue, out io.Writer) error {
	sub, err := subscriber.New(store, subscriber.Config{PollInterval: time.Hour}, nil)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Close() }()
	messages, err := sub.Subscribe(ctx, example.Topic)
	if err != nil {
		return err
	}
	story := example.TwoSales(s.sell)
	if err := story.Tell(ctx, out); err != nil {
		return err
	}
	var told []string
	for range story.Kept {
		select {
		case msg := <-messages:
			if msg == nil {
				return fmt.Errorf("the subscriber has ended: %w", ctx.Err())
			}
			told = append(told, string(msg.Payload))
			msg.Ack()
		case <-time.After(wokenWithin):
			return fmt.Errorf("no message within %v of its commit", wokenWithin)
		}
	}
	if err := sub.Close(); err != nil {
		return err
	}
	return s.compare(ctx, store, out, story, told)
}

// compare also counts what is still to be delivered, which should be nothing.
func (s *shop) compare(ctx context.Context, store outmill.Queue, out io.Writer, story example.Story, told []string) error {
	rest, err := subscriber.New(store, subscriber.Config{}, nil)
	if err != nil {
		return err
	}
	defer func() { _ = rest.Close() }()
	late, err := example.Listen(ctx, rest, example.Topic)
	if err != nil {
		return err
	}
	sold, err := s.sold(ctx)
	if err != nil {
		return err
	}
	return example.Compare(out, story.Kept,
		example.Column{Name: "in MongoDB", Seen: sold}, example.Column{Name: "delivered", Seen: append(told, late...)})
}
