package sqlite

import (
	"context"
	"sync"

	"github.com/outmill/outmill/internal/bell"
)

// Wake returns a channel that receives when something may have become
// claimable: see outmill.Waker. Within this process it is told at once, by
// what this Store does; of other processes it knows nothing. It is quiet after
// ctx ends or the store is closed.
func (s *Store) Wake(ctx context.Context) <-chan struct{} {
	return s.waker.bell.Listen(ctx)
}

// waker rings when something may have become claimable, and hears of callers'
// commits.
type waker struct {
	// ctx ends when the store is closed.
	ctx  context.Context
	end  context.CancelFunc
	work sync.WaitGroup

	bell bell.Bell

	mu      sync.Mutex
	watched *watched
}

// watched is the caller's transaction of whose commit the waker waits to hear.
type watched struct {
	tx   any
	stop context.CancelFunc
}

func newWaker() *waker {
	ctx, end := context.WithCancel(context.Background())
	return &waker{ctx: ctx, end: end}
}

// watch runs fn in the background, which returns once the transaction has
// committed or ctx has ended. It does nothing if nobody listens, or the
// transaction is watched already.
//
// There is one watch at a time: SQLite has one writer, so when another
// transaction has appended, the one before is over.
func (w *waker) watch(tx any, fn func(ctx context.Context)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil || !w.bell.Heard() {
		return
	}
	if w.watched != nil {
		if w.watched.tx == tx {
			return
		}
		w.watched.stop()
		w.bell.Ring()
	}
	ctx, stop := context.WithTimeout(w.ctx, watchFor)
	current := &watched{tx, stop}
	w.watched = current
	w.work.Go(func() {
		defer stop()
		fn(ctx)
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.watched == current {
			w.watched = nil
		}
	})
}

// forget ends the watch of a transaction that is over.
func (w *waker) forget(tx any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watched != nil && w.watched.tx == tx {
		w.watched.stop()
		w.watched = nil
	}
}

// close ends the watch and waits for it.
func (w *waker) close() {
	w.mu.Lock()
	w.end()
	w.bell.Close()
	w.mu.Unlock()
	w.work.Wait()
}
