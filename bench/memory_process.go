package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/ThreeDotsLabs/watermill/message"
	"golang.org/x/sync/errgroup"

	"github.com/outmill/outmill/forwarder"
	"github.com/outmill/outmill/kafka"
	"github.com/outmill/outmill/postgres"
	"github.com/outmill/outmill/subscriber"
)

// drainEnv makes a process of this program drain a store. It is not a scenario, so that the test
// binary can do it, too.
const drainEnv = "OUTMILL_BENCH_DRAIN"

// drainOrder names the store that a process drains.
type drainOrder struct {
	Postgres, Kafka, Topic string
	N                      int
	Large                  bool
}

type drainResult struct{ PeakKiB int }

func init() {
	text := os.Getenv(drainEnv)
	if text == "" {
		return
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := drainProcess(ctx, text)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(failed)
	}
	os.Exit(ok)
}

func drainProcess(ctx context.Context, text string) error {
	var o drainOrder
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	if err := o.drain(ctx); err != nil {
		return err
	}
	peak, err := peakKiB()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(drainResult{PeakKiB: peak})
}

// drain runs a subscriber and a forwarder, as a service would, until both have got all messages.
func (o drainOrder) drain(ctx context.Context) (err error) {
	store, err := postgres.Open(ctx, o.Postgres, postgres.Config{}, nil)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return o.subscribe(ctx, store) })
	group.Go(func() error { return o.forward(ctx, store) })
	err = group.Wait()
	if err == nil {
		err = nothingLeft(ctx, store)
	}
	return errors.Join(err, store.Close())
}

func (o drainOrder) subscribe(ctx context.Context, store *postgres.Store) error {
	sub, err := subscriber.New(store, subscriber.Config{}, nil)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Close() }()
	delivered, err := sub.Subscribe(ctx, o.Topic)
	if err != nil {
		return err
	}
	for range o.N {
		var msg *message.Message
		select {
		case msg = <-delivered:
		case <-ctx.Done():
			return ctx.Err()
		}
		msg.Ack()
	}
	return sub.Close()
}

func (o drainOrder) forward(ctx context.Context, store *postgres.Store) error {
	var config kafka.Config
	if o.Large {
		config.MaxMessageBytes = largeLimit
	}
	pub, err := newKafkaPublisher(o.Kafka, config)
	if err != nil {
		return err
	}
	defer func() { _ = pub.Close() }()
	acked := newAckCount(o.N)
	fwd, err := forwarder.New(store, watch(pub, acked.note), forwarder.Config{}, nil)
	if err != nil {
		return err
	}
	running, runCtx := errgroup.WithContext(ctx)
	running.Go(func() error { return fwd.Run(runCtx) })
	select {
	case <-acked.all:
	case <-runCtx.Done():
	}
	return errors.Join(ctx.Err(), fwd.Close(), running.Wait())
}

// peakKiB returns the largest amount of memory that this process has used.
func peakKiB() (int, error) {
	file, err := os.Open("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("the peak of the memory is known under Linux only: %w", err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if rest, found := strings.CutPrefix(lines.Text(), "VmHWM:"); found {
			var peak int
			_, err := fmt.Sscanf(rest, "%d kB", &peak)
			return peak, err
		}
	}
	return 0, errors.Join(errors.New("/proc/self/status has no VmHWM"), lines.Err())
}
