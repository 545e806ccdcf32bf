// Package turnstile has the write transactions of one process pass one by one.
package turnstile

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

// ErrHeld says that the same holder kept the turnstile for a waiter's whole patience.
var ErrHeld = errors.New("another write transaction of this store has not ended")

// Turnstile lets one write transaction of the store run at a time, so that those of one process
// do not spin on a busy database. They pass in the order in which they came, after those that are urgent.
type Turnstile struct {
	passed atomic.Uint64
	// locked is set while the holder has the database's write lock, to the time since when, in
	// nanoseconds since origin.
	locked atomic.Int64
	origin time.Time

	mu   sync.Mutex
	held bool
	// urgent and others wait. The channel of the one whose turn it is is closed.
	urgent, others []chan struct{}
}

// New returns a turnstile that nobody holds.
func New() *Turnstile { return &Turnstile{origin: time.Now()} }

type urgentKey struct{}

// Urgently returns a context whose write transactions pass before others: the extensions of leases. A claim
// that passed before could take a record whose handler still runs.
func Urgently(ctx context.Context) context.Context { return context.WithValue(ctx, urgentKey{}, true) }

// urgentWork is the least time for an urgent transaction whose turn it is. It may have waited for nearly all
// the time of its context, and would leave its turn to a claim.
const urgentWork = time.Second

// AtLeast returns the context for the work of a transaction whose turn it is.
func AtLeast(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, limited := ctx.Deadline()
	if ctx.Value(urgentKey{}) == nil || !limited || time.Until(deadline) >= urgentWork {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), urgentWork)
}

// Enter waits for its turn. patience limits how long the same holder may keep it, not how long
// the queue is.
func (t *Turnstile) Enter(ctx context.Context, patience time.Duration) error {
	queue := &t.others
	if ctx.Value(urgentKey{}) != nil {
		queue = &t.urgent
	}
	turn := t.line(queue)
	if turn == nil {
		return nil
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	first, begin := t.passed.Load(), time.Since(t.origin)
	for seen := first; ; {
		select {
		case <-turn:
			return nil
		case <-ctx.Done():
			if !t.givesUp(queue, turn) {
				t.Leave()
				return ctx.Err()
			}
			return t.mark(ctx.Err(), first, begin)
		case <-timer.C:
			now := t.passed.Load()
			if now == seen && t.givesUp(queue, turn) {
				return t.mark(ErrHeld, first, begin)
			}
			seen = now
			timer.Reset(patience)
		}
	}
}

// line passes, or returns what is closed when it is the caller's turn.
func (t *Turnstile) line(queue *[]chan struct{}) (turn chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.held {
		t.held = true
		t.passed.Add(1)
		return nil
	}
	turn = make(chan struct{})
	*queue = append(*queue, turn)
	return turn
}

// givesUp leaves the queue. It reports false if it is the caller's turn by now.
func (t *Turnstile) givesUp(queue *[]chan struct{}, turn chan struct{}) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(*queue, turn)
	if i < 0 {
		return false
	}
	*queue = slices.Delete(*queue, i, i+1)
	return true
}

// mark adds storekit.ErrOwnWriter to the error of a waiter if one holder had the database's write
// lock all the time.
func (t *Turnstile) mark(err error, first uint64, begin time.Duration) error {
	if since := t.locked.Load(); since != 0 && since <= int64(begin) && t.passed.Load() == first {
		return fmt.Errorf("%w (%w)", err, storekit.ErrOwnWriter)
	}
	return err
}

// HasLock notes that the holder has got the database's write lock.
func (t *Turnstile) HasLock() { t.locked.Store(max(int64(time.Since(t.origin)), 1)) }

// Leave lets the next one pass.
func (t *Turnstile) Leave() {
	t.locked.Store(0)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, queue := range []*[]chan struct{}{&t.urgent, &t.others} {
		if len(*queue) > 0 {
			t.passed.Add(1)
			close((*queue)[0])
			*queue = slices.Delete(*queue, 0, 1)
			return
		}
	}
	t.held = false
}

// Waiting is how many wait for their turn.
func (t *Turnstile) Waiting() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.urgent) + len(t.others)
}
