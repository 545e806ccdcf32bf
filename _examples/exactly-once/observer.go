package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/outmill/outmill/sqlite"
)

// lookEvery is how often the parent looks at the count.
const lookEvery = 5 * time.Millisecond

// observer starts consumers, and kills them as the count grows.
type observer struct {
	broker, database string
	opts             options
	store            *sqlite.Store
}

func (o *observer) watch(ctx context.Context) (summary, error) {
	store, err := openStore(ctx, o.database)
	if err != nil {
		return summary{}, err
	}
	defer func() { _ = store.Close() }()
	o.store = store
	if _, err := store.DB().ExecContext(ctx, createTables); err != nil {
		return summary{}, err
	}
	for i := range o.opts.kills {
		// The kills are spread over the messages.
		target := (i + 1) * o.opts.messages / (o.opts.kills + 1)
		counted, err := o.killAt(ctx, target)
		if err != nil {
			return summary{}, err
		}
		fmt.Printf("killed consumer %d at a count of %d\n", i+1, counted)
	}
	consumer, err := o.start(ctx)
	if err != nil {
		return summary{}, err
	}
	if err := consumer.Wait(); err != nil {
		return summary{}, errors.Join(ctx.Err(), fmt.Errorf("the last consumer: %w", err))
	}
	sum := summary{messages: o.opts.messages, kills: o.opts.kills}
	sum.counted, sum.deliveries, err = counts(ctx, store.DB())
	return sum, err
}

// killAt kills a consumer when the count has reached the target.
func (o *observer) killAt(ctx context.Context, target int) (counted int, err error) {
	consumer, err := o.start(ctx)
	if err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- consumer.Wait() }()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case err := <-ended:
			return 0, errors.Join(ctx.Err(), fmt.Errorf("a consumer ended by itself: %w", err))
		case <-ticker.C:
		}
		counted, _, err = counts(ctx, o.store.DB())
		if err != nil || counted >= target {
			_ = consumer.Process.Kill()
			<-ended
			return counted, err
		}
	}
}

func (o *observer) start(ctx context.Context) (*exec.Cmd, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program, "-consume", "-broker", o.broker, "-database", o.database)
	cmd.Env = append(os.Environ(), childVariable+"=1")
	cmd.Stderr = os.Stderr
	return cmd, cmd.Start()
}

// childVariable has the binary of the tests be a consumer.
const childVariable = "OUTMILL_EXACTLY_ONCE_CONSUMER"
