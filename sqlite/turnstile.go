package sqlite

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// errHeld: the same holder kept the turnstile for a waiter's whole patience.
var errHeld = errors.New("another write transaction of this store has not ended")

// turnstile lets one write transaction of the store run at a time, so that those of one process
// do not spin on a busy database.
type turnstile struct {
	token  chan struct{}
	passed atomic.Uint64
}

func newTurnstile() *turnstile {
	return &turnstile{token: make(chan struct{}, 1)}
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
	for seen := t.passed.Load(); ; {
		select {
		case t.token <- struct{}{}:
			t.passed.Add(1)
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			now := t.passed.Load()
			if now == seen {
				return errHeld
			}
			seen = now
			timer.Reset(patience)
		}
	}
}

func (t *turnstile) leave() { <-t.token }
