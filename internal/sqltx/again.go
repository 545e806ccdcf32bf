package sqltx

import (
	"context"
	"fmt"
	"time"

	"github.com/outmill/outmill/storekit"
)

const (
	attempts   = 10
	firstPause = 2 * time.Millisecond
	lastPause  = 200 * time.Millisecond
)

// Again runs fn until it succeeds, fails for a reason that does not pass, ctx
// ends, or it has been tried ten times, with pauses that grow to 200 ms.
func Again(ctx context.Context, passes func(error) bool, fn func() error) error {
	waits := storekit.NewWaits(firstPause, lastPause)
	for attempt := 1; ; attempt++ {
		err := fn()
		if err == nil || !passes(err) {
			return err
		}
		if attempt == attempts {
			return fmt.Errorf("tried %d times: %w", attempts, err)
		}
		if err := waits.Wait(ctx); err != nil {
			return err
		}
	}
}
