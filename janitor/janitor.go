package janitor

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
	"github.com/outmill/outmill/storekit"
)

// Janitor tidies a store. It does not close the store. Its methods may be called concurrently.
type Janitor struct {
	store outmill.Queue
	cfg   Config
	log   watermill.LoggerAdapter
	fails worker.Faults
	// calls knows which kinds of work fail.
	calls storekit.CallLog

	// life ends with Close.
	life context.Context
	end  context.CancelFunc

	mu     sync.Mutex
	closed bool
	runs   sync.WaitGroup
	// repeats counts the calls of Run.
	repeats int
}

// New makes a janitor for a store. It finds the roles of the store by [outmill.As], and leaves
// out the work of those that the store lacks. A nil logger logs nothing. The janitor does
// nothing before Run or RunOnce.
func New(store outmill.Queue, cfg Config, logger watermill.LoggerAdapter) (*Janitor, error) {
	if outmill.IsNil(store) {
		return nil, fmt.Errorf("%w: janitor.New: the store is nil", outmill.ErrInvalidConfig)
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	j := &Janitor{store: store, cfg: cfg, log: storekit.LogWith(logger, watermill.LogFields{"store": store.Name()})}
	j.fails = worker.Faults{Log: j.log, Of: "janitor of the store " + store.Name(), OnError: cfg.OnError}
	j.life, j.end = context.WithCancel(context.Background())
	return j, nil
}

// Run tidies the store until ctx ends, Close is called or the store closes, and then returns nil.
// It logs errors and tries again in the next round. The first round begins after a random part of
// Config.Interval, because the processes of a fleet often start at the same time. Run returns
// outmill.ErrClosed after Close, and of a store that is closed.
func (j *Janitor) Run(ctx context.Context) error {
	ctx, leave, err := j.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	defer j.repeat()()
	var maintained sync.WaitGroup
	maintained.Go(func() { j.keepMaintained(ctx) })
	defer maintained.Wait()
	worker.Paced(ctx, j.cfg.Interval, func() time.Duration {
		began := time.Now()
		_, left, err := j.round(ctx, began.Add(j.cfg.Interval))
		if err != nil && ctx.Err() == nil {
			j.fails.Fault("Upkeep of the store failed, will try again", err, nil)
		}
		if left {
			return 0
		}
		return j.cfg.Interval
	})
	return nil
}

// RunOnce does one round and returns what it did, for a process that ends soon, such as a cron
// job. It begins at once, and ends when no work is left that the janitor can do, or with ctx or
// Close. An error of one kind of work does not keep RunOnce from the others; it returns all of
// them joined, and the counts of what was done.
func (j *Janitor) RunOnce(ctx context.Context) (Report, error) {
	ctx, leave, err := j.enter(ctx)
	if err != nil {
		return Report{}, err
	}
	defer leave()
	report, _, err := j.round(ctx, time.Time{})
	if ctx.Err() == nil {
		err = errors.Join(err, j.maintain(ctx))
	}
	if err != nil {
		err = fmt.Errorf("outmill: janitor of the store %s: %w", j.store.Name(), err)
	}
	return report, err
}

// Close ends Run and RunOnce and waits until they have returned. The batch in progress is
// finished or undone. Close may be called more than once. It returns nil.
func (j *Janitor) Close() error {
	j.mu.Lock()
	j.closed = true
	j.end()
	j.mu.Unlock()
	j.runs.Wait()
	return nil
}

// enter counts a run, unless the janitor or the store is closed, and returns its context, which
// ends with both too.
func (j *Janitor) enter(ctx context.Context) (run context.Context, leave func(), err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return nil, nil, fmt.Errorf("outmill: janitor: %w", outmill.ErrClosed)
	}
	run, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	detach, err := storekit.Attach(j.store, func(ctx context.Context) {
		cancel()
		select {
		case <-ended:
		case <-ctx.Done():
		}
	})
	if err != nil {
		cancel()
		return nil, nil, fmt.Errorf("outmill: janitor of the store %s: %w", j.store.Name(), err)
	}
	j.runs.Add(1)
	unlink := context.AfterFunc(j.life, cancel)
	return run, func() {
		unlink()
		cancel()
		detach()
		close(ended)
		j.runs.Done()
	}, nil
}
