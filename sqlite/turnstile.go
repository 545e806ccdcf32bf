package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/outmill/outmill/storekit"
)

// errHeld: the same holder kept the turnstile for a waiter's whole patience.
var errHeld = errors.New("another write transaction of this store has not ended")

// turnstile lets one write transaction of the store run at a time, so that those of one process
// do not spin on a busy database.
type turnstile struct {
	token  chan struct{}
	passed atomic.Uint64
	// locked is set while the holder has the database's write lock, to the time since when, in
	// nanoseconds since origin.
	locked atomic.Int64
	origin time.Time
}

func newTurnstile() *turnstile {
	return &turnstile{token: make(chan struct{}, 1), origin: time.Now()}
}

// enter waits for its turn. patience limits how long the same holder may keep it, not how long
// the queue is.
func (t *turnstile) enter(ctx context.Context, patience time.Duration) error {
	select {
	case t.token <- struct{}{}:
		t.passed.Add(1)
		return nil
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	first, begin := t.passed.Load(), time.Since(t.origin)
	for seen := first; ; {
		select {
		case t.token <- struct{}{}:
			t.passed.Add(1)
			return nil
		case <-ctx.Done():
			return t.mark(ctx.Err(), first, begin)
		case <-timer.C:
			now := t.passed.Load()
			if now == seen {
				return t.mark(errHeld, first, begin)
			}
			seen = now
			timer.Reset(patience)
		}
	}
}

// mark adds storekit.ErrOwnWriter to the error of a waiter if one holder had the database's write
// lock all the time.
func (t *turnstile) mark(err error, first uint64, begin time.Duration) error {
	if since := t.locked.Load(); since != 0 && since <= int64(begin) && t.passed.Load() == first {
		return fmt.Errorf("%w (%w)", err, storekit.ErrOwnWriter)
	}
	return err
}

// hasLock notes that the holder has got the database's write lock.
func (t *turnstile) hasLock() { t.locked.Store(max(int64(time.Since(t.origin)), 1)) }

func (t *turnstile) leave() {
	t.locked.Store(0)
	<-t.token
}
