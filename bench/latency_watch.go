package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// noteAcks gets the ids of messages that were acked just now. Several goroutines may call it.
type noteAcks func(acked []string, at time.Time)

// watched is a publisher that reports acked messages. It still accepts batches, and records without messages where the publisher does.
type watched struct {
	storekit.BatchPublisher
	note noteAcks
}

func watch(pub storekit.BatchPublisher, note noteAcks) storekit.BatchPublisher {
	return &watched{pub, note}
}

func (w *watched) PublishBatch(ctx context.Context, batch []storekit.Outgoing) error {
	err := w.BatchPublisher.PublishBatch(ctx, batch)
	at := time.Now()
	w.note(ackedOf(len(batch), func(i int) string { return batch[i].Message.UUID }, err), at)
	return err
}

// PublishesRaw implements storekit.RawPublisher.
func (w *watched) PublishesRaw(publisher message.Publisher) func(ctx context.Context, batch []roles.RawRecord) error {
	raw, can := w.BatchPublisher.(storekit.RawPublisher)
	if !can || publisher != message.Publisher(w) {
		return nil
	}
	publish := raw.PublishesRaw(w.BatchPublisher)
	if publish == nil {
		return nil
	}
	return func(ctx context.Context, batch []roles.RawRecord) error {
		err := publish(ctx, batch)
		at := time.Now()
		w.note(ackedOf(len(batch), func(i int) string { return batch[i].MessageID }, err), at)
		return err
	}
}

func ackedOf(n int, idOf func(int) string, err error) []string {
	var partly *storekit.PublishError
	if err != nil && !errors.As(err, &partly) {
		return nil
	}
	failed := map[int]bool{}
	if partly != nil {
		for _, f := range partly.Failed {
			failed[f.Index] = true
		}
	}
	acked := make([]string, 0, n)
	for i := range n {
		if !failed[i] {
			acked = append(acked, idOf(i))
		}
	}
	return acked
}

// watchedPlain is the same for a publisher without batches.
type watchedPlain struct {
	message.Publisher
	note noteAcks
}

func (w *watchedPlain) Publish(topic string, messages ...*message.Message) error {
	err := w.Publisher.Publish(topic, messages...)
	if err == nil {
		w.note(ackedOf(len(messages), func(i int) string { return messages[i].UUID }, nil), time.Now())
	}
	return err
}

// discard acks everything at once.
type discard struct{}

func (discard) Publish(string, ...*message.Message) error               { return nil }
func (discard) PublishBatch(context.Context, []storekit.Outgoing) error { return nil }
func (discard) Close() error                                            { return nil }

// ackCount closes all at the last of n acks.
type ackCount struct {
	n     int64
	count atomic.Int64
	all   chan struct{}
}

func newAckCount(n int) *ackCount { return &ackCount{n: int64(n), all: make(chan struct{})} }

// patience is the longest time without an ack. It is twice as long as a lease, after which
// messages that their owner has lost are delivered again.
const patience = time.Minute

// wait returns when all messages are acked. It fails after patience without an ack, because then
// some messages are lost.
func (c *ackCount) wait(ctx context.Context) error {
	ticker := time.NewTicker(patience)
	defer ticker.Stop()
	for before := int64(-1); ; {
		select {
		case <-c.all:
			return nil
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now := c.count.Load()
		if now == before {
			return fmt.Errorf("%d of %d messages were published, and no more came for %s", now, c.n, patience)
		}
		before = now
	}
}

func (c *ackCount) note(acked []string, _ time.Time) { c.add(len(acked)) }

func (c *ackCount) add(acked int) {
	after := c.count.Add(int64(acked))
	if after >= c.n && after-int64(acked) < c.n {
		close(c.all)
	}
}
