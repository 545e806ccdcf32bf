package worker

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/ThreeDotsLabs/watermill"
)

// Rounds calls round at each interval until ctx ends: see Paced. Errors are logged; the next
// round tries again.
func Rounds(ctx context.Context, interval time.Duration, log watermill.LoggerAdapter, round func(context.Context) error) {
	Paced(ctx, interval, func() time.Duration {
		if err := round(ctx); err != nil && ctx.Err() == nil {
			log.Error("Upkeep of the registrations failed, will try again", err, nil)
		}
		return interval
	})
}

// Paced calls round until ctx ends, and after each call waits for the pause that it returns.
// The first call comes after a random part of first, so that processes that start at the same
// time do not work at the same time.
func Paced(ctx context.Context, first time.Duration, round func() (pause time.Duration)) {
	timer := time.NewTimer(1 + rand.N(first))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(round())
	}
}
