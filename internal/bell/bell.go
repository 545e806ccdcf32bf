// Package bell wakes the readers of a store within one process. Stores share
// it.
package bell

import (
	"context"
	"sync"
)

// Bell tells listeners, and never waits for one. The zero value is ready; it
// may be used concurrently.
type Bell struct {
	mu        sync.Mutex
	listeners map[chan struct{}]struct{}
	closed    bool
}

// Listen returns a channel that receives when the bell rings. It is quiet
// after ctx ends or the bell is closed, and never closed.
func (b *Bell) Listen(ctx context.Context) <-chan struct{} {
	told := make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || ctx.Err() != nil {
		return told
	}
	if b.listeners == nil {
		b.listeners = map[chan struct{}]struct{}{}
	}
	b.listeners[told] = struct{}{}
	context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.listeners, told)
	})
	return told
}

// Ring tells every listener that has not been told yet.
func (b *Bell) Ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for told := range b.listeners {
		select {
		case told <- struct{}{}:
		default:
		}
	}
}

// Heard reports whether anybody listens.
func (b *Bell) Heard() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.listeners) > 0
}

// Close forgets all listeners and takes no further ones.
func (b *Bell) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	clear(b.listeners)
}
