package main

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// pacing commits messages at a rate that does not depend on how long a commit
// takes. Each commit has its time, and a late commit does not delay the next one.
type pacing struct {
	perSecond int
	// writers are enough goroutines even if a commit takes 20 ms on the disk.
	writers int
	// commit commits message i in a transaction of its own.
	commit func(ctx context.Context, i int) error
}

const (
	pacedPerSecond = 1000
	pacedWriters   = 20
)

// run commits n messages, and returns the time that this took.
func (p pacing) run(ctx context.Context, n int) (time.Duration, error) {
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for range p.writers {
		group.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= n {
					return nil
				}
				if err := sleepUntil(ctx, began.Add(time.Duration(i)*time.Second/time.Duration(p.perSecond))); err != nil {
					return err
				}
				if err := p.commit(ctx, i); err != nil {
					return err
				}
			}
		})
	}
	err := group.Wait()
	return time.Since(began), err
}

func sleepUntil(ctx context.Context, at time.Time) error {
	return sleep(ctx, time.Until(at))
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
