package subscriber

import (
	"context"
	"sync"
	"sync/atomic"
)

// messageContext is a context that ends with its parent or with end. Most handlers never wait for the end of
// their message's context, so it registers with the parent only when someone asks for Done: the messages of a
// subscription have one parent, whose list of children all its handlers would lock.
type messageContext struct {
	context.Context
	// own is the context that someone waits for; nil before.
	own atomic.Pointer[ownContext]

	// mu guards over, and the making of own.
	mu   sync.Mutex
	over bool
}

type ownContext struct {
	context.Context
	cancel context.CancelFunc
}

// Done implements context.Context.
func (c *messageContext) Done() <-chan struct{} {
	if own := c.own.Load(); own != nil {
		return own.Done()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	own := c.own.Load()
	if own == nil {
		own = &ownContext{}
		own.Context, own.cancel = context.WithCancel(c.Context)
		if c.over {
			own.cancel()
		}
		c.own.Store(own)
	}
	return own.Done()
}

// Err implements context.Context.
func (c *messageContext) Err() error {
	if own := c.own.Load(); own != nil {
		return own.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return context.Canceled
	}
	return c.Context.Err()
}

// Value implements context.Context. The contexts that a handler derives find their parent with it, and need
// no goroutine that waits for Done.
func (c *messageContext) Value(key any) any {
	if own := c.own.Load(); own != nil {
		return own.Value(key)
	}
	return c.Context.Value(key)
}

// end ends the context. It may be called more than once.
func (c *messageContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over = true
	if own := c.own.Load(); own != nil {
		own.cancel()
	}
}
