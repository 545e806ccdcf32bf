package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// audit records the way of each order through the program.
type audit struct {
	mu      sync.Mutex
	traces  []trace
	placed  bool
	done    chan struct{}
	alien   int
	updated time.Time
	sum     summary
}

type trace struct {
	committed, rolledBack bool
	handled, forwarded    int
}

// summary is the last line of the program.
type summary struct {
	committed, rolledBack, handled, forwarded, lost, duplicated int
	// phantom counts rolled back orders that were seen, and messages that are not an order of
	// this run.
	phantom int
}

func (s summary) String() string {
	line := fmt.Sprintf("committed=%d rolled_back=%d handled=%d forwarded=%d lost=%d duplicated=%d",
		s.committed, s.rolledBack, s.handled, s.forwarded, s.lost, s.duplicated)
	if s.phantom > 0 {
		return fmt.Sprintf("%d messages were seen that should not exist\n%s", s.phantom, line)
	}
	return line
}

func (s summary) ok() bool { return s.lost == 0 && s.phantom == 0 }

func newAudit(orders int) *audit {
	return &audit{traces: make([]trace, orders), done: make(chan struct{}), updated: time.Now()}
}

func (a *audit) committed(orders []order) {
	a.update(func() {
		for _, o := range orders {
			a.traces[o.ID].committed = true
			a.sum.committed++
		}
	})
}

func (a *audit) rolledBack(orders []order) {
	a.update(func() {
		for _, o := range orders {
			a.traces[o.ID].rolledBack = true
			a.sum.rolledBack++
		}
	})
}

func (a *audit) handled(o order, err error) {
	a.seen(o, err, func(t *trace) *int { return &t.handled }, &a.sum.handled)
}

func (a *audit) forwarded(o order, err error) {
	a.seen(o, err, func(t *trace) *int { return &t.forwarded }, &a.sum.forwarded)
}

// seen counts the first delivery as done, and each further one as a duplicate.
func (a *audit) seen(o order, err error, count func(*trace) *int, first *int) {
	a.update(func() {
		if err != nil || o.ID < 0 || o.ID >= len(a.traces) {
			a.alien++
			return
		}
		n := count(&a.traces[o.ID])
		if *n++; *n == 1 {
			*first++
		} else {
			a.sum.duplicated++
		}
	})
}

func (a *audit) allPlaced() { a.update(func() { a.placed = true }) }

func (a *audit) update(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
	a.updated = time.Now()
	if a.placed && a.sum.handled >= a.sum.committed && a.sum.forwarded >= a.sum.committed {
		select {
		case <-a.done:
		default:
			close(a.done)
		}
	}
}

// wait returns when every order has arrived, or when no order has arrived for patience. In the
// second case the summary counts the missing ones.
func (a *audit) wait(ctx context.Context, patience time.Duration) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-a.done:
			return nil
		case <-ctx.Done():
			return errInterrupted
		case <-ticker.C:
		}
		a.mu.Lock()
		stalled := time.Since(a.updated) > patience
		a.mu.Unlock()
		if stalled {
			fmt.Printf("nothing has moved for %s\n", patience)
			return nil
		}
	}
}

func (a *audit) summary() summary {
	a.mu.Lock()
	defer a.mu.Unlock()
	sum := a.sum
	sum.phantom = a.alien
	for _, t := range a.traces {
		if t.committed && (t.handled == 0 || t.forwarded == 0) {
			sum.lost++
		}
		if t.rolledBack && t.handled+t.forwarded > 0 {
			sum.phantom++
		}
	}
	return sum
}

func (a *audit) printProgress(every time.Duration) (stop func()) {
	ticker := time.NewTicker(every)
	quit := make(chan struct{})
	var printing sync.WaitGroup
	printing.Go(func() {
		for {
			select {
			case <-quit:
				return
			case <-ticker.C:
			}
			a.mu.Lock()
			sum := a.sum
			a.mu.Unlock()
			fmt.Printf("… placed %d of %d, handled %d, in Kafka %d\n", sum.committed+sum.rolledBack, len(a.traces), sum.handled, sum.forwarded)
		}
	})
	return func() {
		ticker.Stop()
		close(quit)
		printing.Wait()
	}
}
