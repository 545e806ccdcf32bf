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
		if h.listen(ctx) {
			waits.Reset()
		}
		if waits.Wait(ctx) != nil {
			return
		}
	}
}

// Close ends the connection, and closes the Notifier.
func (h *Hearing) Close() {
	h.mu.Lock()
	h.end()
	h.mu.Unlock()
	h.work.Wait()
	h.Notifier.Close()
}
