package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outmill/outmill/storekit"
)

// errHeld says that the same holder kept the turnstile for a waiter's whole patience.
var errHeld = errors.New("another write transaction of this store has not ended")

// turnstile lets one write transaction of the store run at a time, so that those of one process do not spin on a busy database.
// They pass in the order in which they came, after those that are urgent. The zero value is one that nobody holds.
type turnstile struct {
	passed atomic.Uint64
	// locked says since when the holder has the database's write lock; nil is not yet.
	locked atomic.Pointer[time.Time]

	mu sync.Mutex
	// queue begins with the holder.
	queue []*place
}

type place struct {
	// turn is closed when the turn has come.
	turn   chan struct{}
	urgent bool
}

// urgentWork is the least time for an urgent transaction whose turn it is. It may have waited for nearly all
// the time of its context, and would leave its turn to a claim.
const urgentWork = time.Second

// atLeast returns the context for the work of an urgent transaction whose turn it is.
func atLeast(ctx context.Context) (context.Context, context.CancelFunc) {
	if deadline, limited := ctx.Deadline(); !limited || time.Until(deadline) >= urgentWork {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), urgentWork)
}

// enter waits for its turn; leave lets the next one pass. patience limits how long the same holder may keep the turn, not
// how long the queue is. Extensions of leases are urgent: a claim that passed before could take a record whose handler still runs.
func (t *turnstile) enter(ctx context.Context, patience time.Duration, urgent bool) (leave func(), err error) {
	p := &place{turn: make(chan struct{}), urgent: urgent}
	leave = func() { t.leave(p) }
	if t.join(p) {
		return leave, nil
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	first, begin := t.passed.Load(), time.Now()
	for seen := first; err == nil; {
		select {
		case <-p.turn:
			return leave, nil
		case <-ctx.Done():
			err = ctx.Err()
		case <-timer.C:
			select {
			case <-p.turn:
				// It came together with the end of the patience.
				return leave, nil
			default:
			}
			now := t.passed.Load()
			if now == seen {
				err = errHeld
			}
			seen = now
			timer.Reset(patience)
		}
	}
	// One holder had the write lock all the time.
	if since := t.locked.Load(); since != nil && !since.After(begin) && t.passed.Load() == first {
		err = fmt.Errorf("%w (%w)", err, storekit.ErrOwnWriter)
	}
	leave()
	return nil, err
}

// join reports whether it is the turn of p at once.
func (t *turnstile) join(p *place) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := len(t.queue)
	for p.urgent && at > 1 && !t.queue[at-1].urgent {
		at--
	}
	t.queue = slices.Insert(t.queue, at, p)
	return at == 0
}

func (t *turnstile) leave(p *place) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := slices.Index(t.queue, p)
	if t.queue = slices.Delete(t.queue, at, at+1); at > 0 {
		return
	}
	t.locked.Store(nil)
	t.passed.Add(1)
	if len(t.queue) > 0 {
		close(t.queue[0].turn)
	}
}

// hasLock notes that the holder has got the database's write lock.
func (t *turnstile) hasLock() {
	now := time.Now()
	t.locked.Store(&now)
}

// waiting is how many wait for their turn.
func (t *turnstile) waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return max(len(t.queue)-1, 0)
}
