package janitor

import (
	"context"
	"fmt"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
	"github.com/outmill/outmill/storekit"
)

const (
	// maintainEvery is the time between two calls of Maintain if no work is left.
	maintainEvery = 2 * time.Second
	// maintainAtOnce limits the calls of Maintain in RunOnce.
	maintainAtOnce = 100
	// longestPause is the pause after a call of Maintain that failed, and the longest one
	// after a batch.
	longestPause = 30 * time.Second
)

// keepMaintained calls the store's Maintain until ctx ends. Errors are logged.
func (j *Janitor) keepMaintained(ctx context.Context) {
	janitor, ok := outmill.As[outmill.Janitor](j.store)
	if !ok {
		return
	}
	worker.Paced(ctx, maintainEvery, func() time.Duration {
		began := time.Now()
		more, err := j.maintainOnce(ctx, janitor)
		switch {
		case err != nil && ctx.Err() == nil:
			j.fails.Fault("Maintenance of the store failed, will try again", err, nil)
			return longestPause
		case more:
			return j.pauseAfter(time.Since(began))
		}
		return maintainEvery
	})
}

func (j *Janitor) maintainOnce(ctx context.Context, janitor outmill.Janitor) (more bool, err error) {
	began := time.Now()
	more, err = worker.Bounded(ctx, worker.UpkeepWithin, janitor.Maintain)
	j.calls.Note(ctx, storekit.CallMaintain, "", began, err)
	return more, err
}

// maintain calls the store's Maintain until no work is left.
func (j *Janitor) maintain(ctx context.Context) error {
	janitor, ok := outmill.As[outmill.Janitor](j.store)
	if !ok {
		return nil
	}
	for range maintainAtOnce {
		began := time.Now()
		more, err := j.maintainOnce(ctx, janitor)
		if err != nil {
			return fmt.Errorf("maintain: %w", err)
		}
		if !more {
			return nil
		}
		if err := j.pause(ctx, time.Since(began)); err != nil {
			return err
		}
	}
	return nil
}

// pauseAfter is the pause after work that took so long, so that the janitor works for its
// share of the time.
func (j *Janitor) pauseAfter(worked time.Duration) time.Duration {
	return time.Duration(min(float64(worked)*(1/j.cfg.Share-1), float64(longestPause)))
}

func (j *Janitor) pause(ctx context.Context, worked time.Duration) error {
	timer := time.NewTimer(j.pauseAfter(worked))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
