package storekit

import (
	"context"
	"sync"
	"time"

	"github.com/outmill/outmill"
)

// LeaveTimeout is the time that the workers of a store have to leave it before it closes.
const LeaveTimeout = 5 * time.Second

// leaveGrace is the time that a worker has to return after its context has ended.
const leaveGrace = 500 * time.Millisecond

// Attacher is the role of a store whose Close ends its workers first, so that the outcomes of
// handlers that have finished are not lost, whatever is closed first. Workers are subscribers,
// forwarders, janitors and sets of stores. A store has the role by its Lifecycle.
type Attacher interface {
	// Attach adds a worker. The store's Close calls leave once, while the store still works:
	// leave ends the worker's claims, stores its outcomes, and returns when that is done or ctx
	// has ended. Close calls the leaves of all workers at the same time and waits for them for
	// LeaveTimeout, and not much longer for one that ignores ctx. leave may call methods of the
	// store, except Close. detach removes the worker; it does not wait for a leave that runs,
	// and may be called more than once. After Close has begun, Attach returns
	// outmill.ErrClosed.
	Attach(leave func(ctx context.Context)) (detach func(), err error)
}

// Attach adds a worker to a store that has the role Attacher, or wraps one. Otherwise it does
// nothing: then Close does not wait for the worker.
func Attach(store any, leave func(ctx context.Context)) (detach func(), err error) {
	attacher, ok := outmill.As[Attacher](store)
	if !ok {
		return func() {}, nil
	}
	return attacher.Attach(leave)
}

// workers are the workers of a store. The zero value has none.
type workers struct {
	mu     sync.Mutex
	leaves map[*worker]struct{}
	// left is made when the end begins, and closed when all workers have left.
	left chan struct{}
}

type worker struct{ leave func(ctx context.Context) }

func (ws *workers) attach(leave func(ctx context.Context)) (detach func(), err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.left != nil {
		return nil, outmill.ErrClosed
	}
	if ws.leaves == nil {
		ws.leaves = map[*worker]struct{}{}
	}
	w := &worker{leave}
	ws.leaves[w] = struct{}{}
	return func() {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		delete(ws.leaves, w)
	}, nil
}

// end has all workers leave and then calls closed. A second call returns false when the first
// has called closed.
func (ws *workers) end(closed func()) (first bool) {
	ws.mu.Lock()
	if ws.left != nil {
		ws.mu.Unlock()
		<-ws.left
		return false
	}
	ws.left = make(chan struct{})
	leaving := ws.leaves
	ws.leaves = nil
	ws.mu.Unlock()
	leaveAll(leaving)
	closed()
	close(ws.left)
	return true
}

func leaveAll(leaving map[*worker]struct{}) {
	if len(leaving) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), LeaveTimeout)
	defer cancel()
	var all sync.WaitGroup
	for w := range leaving {
		all.Go(func() { w.leave(ctx) })
	}
	left := make(chan struct{})
	go func() {
		all.Wait()
		close(left)
	}()
	late := time.NewTimer(LeaveTimeout + leaveGrace)
	defer late.Stop()
	select {
	case <-left:
	case <-late.C:
	}
}
