package driver

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/storekit/sqlkit"
)

const (
	firstWatch = time.Millisecond
	lastWatch  = 50 * time.Millisecond
	// watchFor is how long a watch waits for the caller's transaction to commit. Later commits are found by polling.
	watchFor = 30 * time.Second
)

const sqlReached = `SELECT count(*) FROM sqlite_sequence WHERE name = ? AND seq >= ?`

// commits runs functions after the commits of callers' transactions. It must poll for those that the driver has not
// begun, because database/sql does not report commits.
type commits struct {
	d *Driver
	// ctx ends when the driver is closed.
	ctx  context.Context
	end  context.CancelFunc
	work sync.WaitGroup

	mu sync.Mutex
	// begun are the transactions of Transact, and what is to run after their commits.
	begun map[*sql.Tx]*[]func()
	// watched is the transaction that is polled for. SQLite has one writer, so when another transaction has
	// appended, the one before has ended.
	watched *watched
}

type watched struct {
	tx   sqlkit.Handle
	stop context.CancelFunc
	then []func()
}

func newCommits(d *Driver) *commits {
	ctx, end := context.WithCancel(context.Background())
	return &commits{d: d, ctx: ctx, end: end, begun: map[*sql.Tx]*[]func(){}}
}

// own has then get the functions that are to run after the commit of a transaction of Transact.
func (c *commits) own(tx *sql.Tx, then *[]func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun[tx] = then
}

func (c *commits) forget(tx *sql.Tx) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.begun, tx)
}

// after has the functions run after the commit of the caller's transaction, which has inserted the row seq.
func (c *commits) after(h sqlkit.Handle, seq int64, then []func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if tx, ok := h.(*sql.Tx); ok {
		if list := c.begun[tx]; list != nil {
			*list = append(*list, then...)
			return
		}
	}
	if c.ctx.Err() != nil || len(then) == 0 || seq == 0 {
		return
	}
	if c.watched != nil {
		if c.watched.tx == h {
			c.watched.then = append(c.watched.then, then...)
			return
		}
		c.watched.stop()
		before := c.watched.then
		c.work.Go(func() { runAll(before) })
	}
	c.watch(h, seq, then)
}

func (c *commits) watch(h sqlkit.Handle, seq int64, then []func()) {
	ctx, stop := context.WithTimeout(c.ctx, watchFor)
	current := &watched{tx: h, stop: stop, then: then}
	c.watched = current
	c.work.Go(func() {
		defer stop()
		committed := c.d.reached(ctx, seq)
		c.mu.Lock()
		if c.watched == current {
			c.watched = nil
		}
		then := current.then
		c.mu.Unlock()
		if committed {
			runAll(then)
		}
	})
}

// reached waits until other connections can see that the row was inserted.
func (d *Driver) reached(ctx context.Context, seq int64) bool {
	waits := storekit.NewWaits(firstWatch, lastWatch)
	for waits.Wait(ctx) == nil {
		n, err := d.plain(d.db).number(ctx, sqlReached, d.config.Prefix+"records", seq)
		if err == nil && n > 0 {
			return true
		}
	}
	return false
}

// close ends the watch and waits for it.
func (c *commits) close() {
	c.mu.Lock()
	c.end()
	c.mu.Unlock()
	c.work.Wait()
}

func runAll(list []func()) {
	for _, fn := range list {
		fn()
	}
}
