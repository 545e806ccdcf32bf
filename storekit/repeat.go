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
	waits := NewWaits(firstPause, lastPause)
	for attempt := 1; ; attempt++ {
		err := fn()
		if err == nil || !passes(err) {
			return err
		}
		if attempt == repeats {
			return fmt.Errorf("tried %d times: %w", repeats, err)
		}
		if err := waits.Wait(ctx); err != nil {
			return err
		}
	}
}
