package proc

import (
	"context"
	"time"
)

// Wait waits for d. If the context ends first, it returns the error of the context.
func Wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
