package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"
)

// printer writes whole lines.
type printer struct {
	mu sync.Mutex
	to io.Writer
}

func (p *printer) line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintf(p.to, format+"\n", args...)
}

// counts has the numbers of messages that were moved into the outbox, recognised there from an
// earlier move, or skipped because they cannot be moved.
type counts struct{ moved, repeated, skipped int }

func (c *counts) add(other counts) {
	c.moved += other.moved
	c.repeated += other.repeated
	c.skipped += other.skipped
}

func reportUntil(ctx context.Context, movers []*mover, every time.Duration, out *printer) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	before := make([]int, len(movers))
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for i, m := range movers {
			c := m.total()
			rate := float64(c.moved-before[i]) / every.Seconds()
			before[i] = c.moved
			left, err := m.table.left(ctx, m.db)
			if ctx.Err() != nil {
				return
			}
			out.line("%s: moved %d (%.0f/s), repeated %d, skipped %d, left %s", m.table.topic, c.moved, rate, c.repeated, c.skipped,
				known(left, err))
		}
	}
}

// summary ends with the line that scripts read.
func summary(ctx context.Context, movers []*mover, took time.Duration, out *printer) {
	const patience = 30 * time.Second
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	var all counts
	var allLeft int
	var firstErr error
	for _, m := range movers {
		c := m.total()
		left, err := m.table.left(ctx, m.db)
		if err != nil && firstErr == nil {
			firstErr = err
		}
		all.add(c)
		allLeft += left
		out.line("%s: moved %d, repeated %d, skipped %d, left %s", m.table.topic, c.moved, c.repeated, c.skipped, known(left, err))
	}
	out.line("topics=%d moved=%d repeated=%d skipped=%d left=%s seconds=%.1f", len(movers), all.moved, all.repeated, all.skipped,
		known(allLeft, firstErr), took.Seconds())
}

func known(count int, err error) string {
	if err != nil {
		return "unknown"
	}
	return strconv.Itoa(count)
}
