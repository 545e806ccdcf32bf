// Package clock lets tests of this module move the time of stores whose clock is that of the process.
package clock

import (
	"context"
	"sync/atomic"
	"time"
)

// Clock runs ahead of time.Now by what tests let pass. The zero value is on time. It is safe for concurrent use.
type Clock struct{ ahead atomic.Int64 }

// Elapse lets d pass.
func (c *Clock) Elapse(d time.Duration) { c.ahead.Add(int64(d)) }

// Now is the time of the clock.
func (c *Clock) Now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

type key struct{}

// With returns a context for opening stores that use the clock.
func With(ctx context.Context, c *Clock) context.Context { return context.WithValue(ctx, key{}, c) }

// From returns the clock that With has put into ctx; without one, time.Now.
func From(ctx context.Context) func() time.Time {
	if c, ok := ctx.Value(key{}).(*Clock); ok {
		return c.Now
	}
	return time.Now
}

// AheadOf returns how far the clock that With has put into ctx is ahead, for a store whose clock is that of its database; without one, nil.
func AheadOf(ctx context.Context) func() time.Duration {
	c, ok := ctx.Value(key{}).(*Clock)
	if !ok {
		return nil
	}
	return func() time.Duration { return time.Duration(c.ahead.Load()) }
}
