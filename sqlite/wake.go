package sqlite

import (
	"context"
	"sync"
)

// Wake returns a channel that receives when something may have become
// claimable: see outmill.Waker. Within this process it is told at once, by
// what this Store does; of other processes it knows nothing. It is quiet after
// ctx ends or the store is closed.
func (s *Store) Wake(ctx context.Context) <-chan struct{} {
	return s.waker.listen(ctx)
}

// waker tells listeners, and never waits for one.
type waker struct {
	// ctx ends when the store is closed.
	ctx  context.Context
	end  context.CancelFunc
	work sync.WaitGroup

	mu        sync.Mutex
	listeners map[chan struct{}]struct{}
	watched   *watched
}

// watched is the caller's transaction of whose commit the waker waits to hear.
type watched struct {
	tx   any
	stop context.CancelFunc
}

func newWaker() *waker {
	ctx, end := context.WithCancel(context.Background())
	return &waker{ctx: ctx, end: end, listeners: map[chan struct{}]struct{}{}}
}

func (w *waker) listen(ctx context.Context) <-chan struct{} {
	told := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ctx.Err() != nil || ctx.Err() != nil {
		return told
	}
	w.listeners[told] = struct{}{}
	context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.listeners, told)
	})
	return told
}

func (w *waker) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tell()
}

func (w *waker) tell() {
	for told := range w.listeners {
		select {
		case told <- struct{}{}:
		default:
		}
	}
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
	if w.ctx.Err() != nil || len(w.listeners) == 0 {
		return
	}
	if w.watched != nil {
		if w.watched.tx == tx {
			return
		}
		w.watched.stop()
		w.tell()
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
	clear(w.listeners)
	w.mu.Unlock()
	w.work.Wait()
}
