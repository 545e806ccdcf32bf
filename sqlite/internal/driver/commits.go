package driver

import (
	"context"
	"sync"
	"time"

	"github.com/outmill/outmill/storekit"
)

// watchFor is how long a watch waits for the caller's transaction to commit. Later commits are found by polling.
const watchFor = 30 * time.Second

const sqlReached = `SELECT count(*) FROM sqlite_sequence WHERE name = ? AND seq >= ?`

// commits runs functions after the commits of callers' transactions. It must poll for those that the driver has not
// begun, because database/sql does not report commits.
type commits struct {
	// begun are the transactions of InTx, by their *sql.Tx.
	begun sync.Map
	// open ends when the driver is closed.
	open context.Context
	end  context.CancelFunc
	work sync.WaitGroup

	mu sync.Mutex
	// last is the transaction that is polled for. SQLite has one writer, so when another transaction has
	// appended, the one before has ended.
	last *watched
}

type watched struct {
	tx   any
	stop context.CancelFunc
	then storekit.AfterCommit
}

// afterCommit has the functions run after the commit of the caller's transaction, which has inserted the row seq.
func (d *Driver) afterCommit(caller any, seq int64, then storekit.AfterCommit) {
	c := &d.commits
	if own, ok := c.begun.Load(caller); ok {
		own.(*tx).AfterCommit = append(own.(*tx).AfterCommit, then...)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch last := c.last; {
	case c.open.Err() != nil || len(then) == 0 || seq == 0:
		return
	case last != nil && last.tx == caller:
		last.then = append(last.then, then...)
		return
	case last != nil:
		last.stop()
	}
	ctx, stop := context.WithTimeout(c.open, watchFor)
	now := &watched{caller, stop, then}
	c.last = now
	c.work.Go(func() { d.watch(ctx, now, seq) })
}

// watch runs the functions when other connections can see that the row was inserted, or another transaction has followed.
func (d *Driver) watch(ctx context.Context, w *watched, seq int64) {
	defer w.stop()
	c, committed := &d.commits, int64(0)
	for waits := newWaits(); committed == 0 && waits.Wait(ctx) == nil; {
		committed, _ = d.plain(d.db).number(ctx, sqlReached, d.config.Prefix+"records", seq)
	}
	c.mu.Lock()
	followed := c.last != w
	if !followed {
		c.last = nil
	}
	c.mu.Unlock()
	if committed > 0 || followed {
		w.then.Committed()
	}
}

// close ends the watch and waits for it.
func (c *commits) close() {
	c.mu.Lock()
	c.end()
	c.mu.Unlock()
	c.work.Wait()
}
