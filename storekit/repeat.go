package storekit

import (
	"context"
	"fmt"
	"time"
)

const (
	repeats    = 10
	firstPause = 2 * time.Millisecond
	lastPause  = 200 * time.Millisecond
)

// Repeat runs a transaction, fn, with pauses that grow to 200 ms. It ends when fn succeeds,
// fails with an error that is not transient, or was tried ten times, or when ctx ends.
// passes reports whether an error, such as a deadlock, is transient.
func Repeat(ctx context.Context, passes func(error) bool, fn func() error) error {
	return repeatUntil(ctx, NewWaits(firstPause, lastPause), passes, func(tried int) bool { return tried == repeats }, fn)
}

// RepeatFor is Repeat for databases where transactions do not wait for each other, so that a conflict is not rare: it takes the
// pauses from waits, and ends when fn was tried twice at least and that much time has passed.
func RepeatFor(ctx context.Context, most time.Duration, waits *Waits, passes func(error) bool, fn func() error) error {
	until := time.Now().Add(most)
	return repeatUntil(ctx, waits, passes, func(tried int) bool { return tried > 1 && time.Now().After(until) }, fn)
}

func repeatUntil(ctx context.Context, waits *Waits, passes func(error) bool, enough func(tried int) bool, fn func() error) error {
	for tried := 1; ; tried++ {
		err := fn()
		if err == nil || !passes(err) {
			return err
		}
		if enough(tried) {
			return fmt.Errorf("tried %d times: %w", tried, err)
		}
		if err := waits.Wait(ctx); err != nil {
			return err
		}
	}
}
