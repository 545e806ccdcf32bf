package storekit

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/outmill/outmill/roles"
)

const (
	// longWait is a wait for a connection that is worth a finding, for as long as waitRemembered.
	longWait       = time.Second
	waitRemembered = 10 * time.Minute
)

// Admission limits how many transactions of handlers (TransactPatiently) have a connection of a
// pool at a time, so that one is left for what cannot wait for a handler: extensions of leases,
// settlements and claims. Handlers are admitted in the order in which they came. The zero value is
// ready to use. It is safe for concurrent use.
type Admission struct {
	mu      sync.Mutex
	running int
	queue   []*admitted
	told    bool
	// longest is the longest wait since the time at, or shortly before it.
	longest time.Duration
	at      time.Time
}

type admitted struct {
	ready chan struct{}
	limit int
	since time.Time
}

// HandlersOf returns how many transactions of handlers a pool of so many connections admits: one
// less than it has, but at least one. A pool without a limit, 0, admits all, 0.
func HandlersOf(connections int) int {
	if connections <= 0 {
		return 0
	}
	return max(connections-1, 1)
}

// Run calls run, for a transaction of a handler when it is admitted. limit 0 admits all. tell is
// called once, when the first handler must wait. Errors: that of ctx, those of run.
func (a *Admission) Run(ctx context.Context, limit int, tell func(), run func() error) error {
	if limit == 0 || !IsPatient(ctx) {
		return run()
	}
	if err := a.enter(ctx, limit, tell); err != nil {
		return err
	}
	defer a.leave()
	return run()
}

func (a *Admission) enter(ctx context.Context, limit int, tell func()) error {
	a.mu.Lock()
	if len(a.queue) == 0 && a.running < limit {
		a.running++
		a.mu.Unlock()
		return nil
	}
	w := &admitted{make(chan struct{}), limit, time.Now()}
	a.queue = append(a.queue, w)
	first := !a.told
	a.told = true
	a.mu.Unlock()
	if first {
		tell()
	}
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
		a.giveUp(w)
		return ctx.Err()
	}
}

func (a *Admission) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left()
}

func (a *Admission) giveUp(w *admitted) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if i := slices.Index(a.queue, w); i >= 0 {
		a.waited(w)
		a.queue = slices.Delete(a.queue, i, i+1)
		return
	}
	a.left()
}

func (a *Admission) left() {
	a.running--
	for len(a.queue) > 0 && a.running < a.queue[0].limit {
		next := a.queue[0]
		a.queue = a.queue[1:]
		a.running++
		a.waited(next)
		close(next.ready)
	}
}

func (a *Admission) waited(w *admitted) {
	wait, now := time.Since(w.since), time.Now()
	if wait >= longWait && (wait >= a.longest || now.Sub(a.at) > waitRemembered) {
		a.longest, a.at = wait, now
	}
}

// Examine adds a finding if handlers of this process have waited for a connection lately. more says
// how the pool gets more connections.
func (a *Admission) Examine(e *roles.Examination, limit int, more string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.queue) > 0 {
		a.waited(a.queue[0])
	}
	if a.longest == 0 || time.Since(a.at) > waitRemembered {
		return
	}
	e.Add(roles.Finding{
		Code: "pool_small",
		Text: fmt.Sprintf("A handler with a transaction has waited for %s for a connection: %d may have one at a time, and %d wait now.",
			a.longest.Round(time.Millisecond), limit, len(a.queue)),
		Remedy: more + ", or let a subscriber start fewer handlers at a time: subscriber.Config.MaxInFlight.",
	})
}
