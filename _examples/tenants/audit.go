package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// audit compares the committed orders with the handled ones.
type audit struct {
	mu     sync.Mutex
	orders map[string]*trace
	sum    summary
	// changed has a signal after each change.
	changed chan struct{}
}

// trace has the events of one order.
type trace struct {
	committed bool
	handled   int
}

type summary struct {
	committed, rolledBack, handled, misplaced, lost, duplicated, phantom int
}

func (s summary) String() string {
	return fmt.Sprintf("committed=%d rolled_back=%d handled=%d misplaced=%d lost=%d duplicated=%d",
		s.committed, s.rolledBack, s.handled, s.misplaced, s.lost, s.duplicated)
}

func (s summary) ok() bool { return s.lost == 0 && s.misplaced == 0 && s.phantom == 0 }

func newAudit() *audit {
	return &audit{orders: map[string]*trace{}, changed: make(chan struct{}, 1)}
}

func (a *audit) update(fn func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	fn()
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

func (a *audit) of(id string) *trace {
	if a.orders[id] == nil {
		a.orders[id] = &trace{}
	}
	return a.orders[id]
}

func (a *audit) committed(id string) {
	a.update(func() { a.of(id).committed = true })
}

func (a *audit) rolledBack() {
	a.update(func() { a.sum.rolledBack++ })
}

func (a *audit) handled(id string, right bool) {
	a.update(func() {
		a.of(id).handled++
		if !right {
			a.sum.misplaced++
		}
	})
}

func (a *audit) summary() summary {
	a.mu.Lock()
	defer a.mu.Unlock()
	sum := a.sum
	for _, t := range a.orders {
		switch {
		case !t.committed:
			sum.phantom++
		case t.handled == 0:
			sum.lost++
		default:
			sum.duplicated += t.handled - 1
			sum.handled++
		}
		if t.committed {
			sum.committed++
		}
	}
	return sum
}

// wait returns when every committed order was handled, or nothing more has come for patience.
func (a *audit) wait(ctx context.Context, patience time.Duration) error {
	for a.summary().lost > 0 {
		timer := time.NewTimer(patience)
		select {
		case <-a.changed:
			timer.Stop()
		case <-timer.C:
			return nil
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("interrupted: %w", ctx.Err())
		}
	}
	return nil
}
