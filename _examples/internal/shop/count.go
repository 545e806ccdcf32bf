package shop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// patience is how long nothing may move until what has not come is lost.
const patience = 30 * time.Second

// Count follows each order through the program.
type Count struct {
	mu    sync.Mutex
	fates [carts * cartSize]fate
	// alien are messages that are no order.
	alien  int
	placed bool
	moved  chan struct{}
}

type fate struct {
	committed, rolledBack bool
	handled, forwarded    int
}

// NewCount is a count of no orders.
func NewCount() *Count { return &Count{moved: make(chan struct{}, 1)} }

// Committed notes orders that were committed.
func (c *Count) Committed(cart []Order) {
	c.each(cart, func(f *fate) { f.committed = true })
}

// RolledBack notes orders that were rolled back.
func (c *Count) RolledBack(cart []Order) {
	c.each(cart, func(f *fate) { f.rolledBack = true })
}

// Handled notes the message of an order that a handler got.
func (c *Count) Handled(payload []byte) {
	c.seen(payload, func(f *fate) { f.handled++ })
}

// Forwarded notes the message of an order that arrived in Kafka.
func (c *Count) Forwarded(payload []byte) {
	c.seen(payload, func(f *fate) { f.forwarded++ })
}

// AllPlaced notes that no more orders come.
func (c *Count) AllPlaced() { c.change(func() { c.placed = true }) }

func (c *Count) seen(payload []byte, note func(*fate)) {
	var o Order
	err := json.Unmarshal(payload, &o)
	if err != nil || o.ID < 0 || o.ID >= len(c.fates) {
		c.change(func() { c.alien++ })
		return
	}
	c.each([]Order{o}, note)
}

func (c *Count) each(cart []Order, note func(*fate)) {
	c.change(func() {
		for _, o := range cart {
			note(&c.fates[o.ID])
		}
	})
}

func (c *Count) change(do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
	select {
	case c.moved <- struct{}{}:
	default:
	}
}

// Wait returns when every committed order has arrived in both places, or when
// nothing has moved for patience.
func (c *Count) Wait(ctx context.Context) error {
	for !c.complete() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("interrupted: %w", ctx.Err())
		case <-time.After(patience):
			return nil
		case <-c.moved:
		}
	}
	return nil
}

func (c *Count) complete() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.fates {
		if f.committed && (f.handled == 0 || f.forwarded == 0) {
			return false
		}
	}
	return c.placed
}

// Report prints the last line of the quickstart, and returns an error where an
// order was lost or seen that should not be.
func (c *Count) Report(out io.Writer, kept int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var committed, rolledBack, handled, forwarded, lost, duplicated int
	phantom := c.alien
	for _, f := range c.fates {
		handled += min(f.handled, 1)
		forwarded += min(f.forwarded, 1)
		duplicated += max(f.handled-1, 0) + max(f.forwarded-1, 0)
		switch {
		case f.rolledBack:
			rolledBack++
			phantom += min(f.handled+f.forwarded, 1)
		case f.committed:
			committed++
			lost += 1 - min(f.handled, f.forwarded, 1)
		}
	}
	fmt.Fprintf(out, "committed=%d rolled_back=%d handled=%d forwarded=%d lost=%d duplicated=%d\n",
		committed, rolledBack, handled, forwarded, lost, duplicated)
	switch {
	case lost > 0:
		return fmt.Errorf("%d orders were lost", lost)
	case phantom > 0:
		return fmt.Errorf("%d messages were seen that should not exist", phantom)
	case kept != committed:
		return errors.New("the orders in the database are not those that were committed")
	}
	return nil
}
