package storekit

import (
	"context"
	"sync"
	"time"
)

const (
	firstReconnect = 100 * time.Millisecond
	lastReconnect  = 30 * time.Second
)

// Hearing has the Notifier of a store get the hints of other processes, for as long as the store has readers. All readers share one
// connection.
type Hearing struct {
	Notifier
	// listen passes on what it hears until its connection breaks or its context ends. It reports whether it has begun to hear.
	listen func(ctx context.Context) (worked bool)
	// open ends with the store.
	open context.Context
	end  context.CancelFunc
	work sync.WaitGroup

	mu sync.Mutex
	// readers are the calls of Hear whose contexts have not ended. stop ends the connection of the present ones.
	readers int
	stop    context.CancelFunc
	// heard counts what was heard, and the begin and end of each connection. hears says that one is open.
	heard uint64
	hears bool
}

// NewHearing returns a Hearing that calls listen again whenever it returns, after a pause that grows while it does not work.
func NewHearing(listen func(ctx context.Context) (worked bool)) *Hearing {
	h := &Hearing{listen: listen}
	h.open, h.end = context.WithCancel(context.Background())
	return h
}

// Hear listens until ctx ends, or Close is called. It returns at once.
func (h *Hearing) Hear(ctx context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open.Err() != nil || ctx.Err() != nil {
		return
	}
	if h.readers++; h.readers == 1 {
		listens, stop := context.WithCancel(h.open)
		h.stop = stop
		h.work.Go(func() { h.keep(listens) })
	}
	context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.readers--; h.readers == 0 {
			h.stop()
		}
	})
}

func (h *Hearing) keep(ctx context.Context) {
	for waits := NewWaits(firstReconnect, lastReconnect); ctx.Err() == nil; {
		worked := h.listen(ctx)
		h.note(false)
		if worked {
			waits.Reset()
		}
		if waits.Wait(ctx) != nil {
			return
		}
	}
}

// Begin notes that the connection is open. What was committed before is not reported any more, so it wakes for any topic. The
// function listen calls it.
func (h *Hearing) Begin() {
	h.note(true)
	h.Notify()
}

// Note counts a report of the connection, also one that wakes nobody. The function listen calls it.
func (h *Hearing) Note() { h.note(true) }

func (h *Hearing) note(hears bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.heard++
	h.hears = hears
}

// Heard returns a number that rises with each report, and with the begin and the end of each connection, and whether a connection is
// open.
func (h *Hearing) Heard() (reports uint64, hears bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.heard, h.hears
}

// Close ends the connection, and closes the Notifier.
func (h *Hearing) Close() {
	h.mu.Lock()
	h.end()
	h.mu.Unlock()
	h.work.Wait()
	h.Notifier.Close()
}
