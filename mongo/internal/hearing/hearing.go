// Package hearing has the stores of a process share the change streams by which they hear of other processes.
package hearing

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

const (
	firstReconnect = 100 * time.Millisecond
	lastReconnect  = 30 * time.Second
)

// ErrNotAllowed is what the error of a Listener wraps if the server does not allow the connection: it is not tried again.
var ErrNotAllowed = errors.New("the server does not allow it")

// Listener says by which connection a store hears of other processes.
type Listener struct {
	// Of names the connection: the stores of a process that have an equal one share it. It must be comparable. A nil one is not shared.
	Of any
	// Part is what the store hears of. See Ears.
	Part string
	// What the connection is called in the log, which gets a line when it fails.
	What string
	Log  *storekit.Log
	// Listen passes on what it hears until the connection breaks or ctx ends. That of the first store serves all that share it, also when
	// the store has closed.
	Listen func(ctx context.Context, to *Ears) error
	// Else is used in place of a connection that the server does not allow.
	Else *Listener
}

// Hearing has the Notifier of a store get the hints of other processes, for as long as the store has readers. All its readers share one
// connection, and other stores may share it, too. It is safe for concurrent use.
type Hearing struct {
	storekit.Notifier
	// ends waits for the connections that the store was the last to use.
	ends sync.WaitGroup

	mu       sync.Mutex
	listener Listener
	closed   bool
	// readers are the calls of Hear whose contexts have not ended. on is the connection while there are some.
	readers int
	on      *Ears
	// heard counts what was heard, and the begin and end of each connection. hears says that one is open.
	heard uint64
	hears bool
}

// New returns a Hearing that calls l.Listen again whenever it returns, after a pause that grows while it does not work.
func New(l Listener) *Hearing {
	h := &Hearing{listener: l}
	if l.Of == nil {
		h.listener.Of = h
	}
	return h
}

// Hear listens until ctx ends, or Close is called. It returns at once.
func (h *Hearing) Hear(ctx context.Context) {
	h.mu.Lock()
	if h.closed || ctx.Err() != nil {
		h.mu.Unlock()
		return
	}
	open := false
	if h.readers++; h.readers == 1 {
		open = h.join()
	}
	h.mu.Unlock()
	if open {
		// What was committed before is not reported any more.
		h.Notify()
	}
	context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.readers--; h.readers == 0 {
			h.leave()
		}
	})
}

// join begins to use a connection, and reports whether it is open already. The caller holds the lock.
func (h *Hearing) join() (open bool) {
	if h.on, open = connections.join(h, h.listener); open {
		h.count(true)
	}
	return open
}

// leave ends the use of the connection. The caller holds the lock.
func (h *Hearing) leave() {
	if h.on == nil {
		return
	}
	if e := h.on; connections.leave(h, e) {
		e.end()
		h.ends.Go(e.work.Wait)
	}
	h.on = nil
	h.count(false)
}

// otherwise has the Hearing use another connection than e.
func (h *Hearing) otherwise(e *Ears) {
	h.mu.Lock()
	open := false
	if h.on == e && h.listener.Else != nil {
		h.listener = *h.listener.Else
		connections.leave(h, e)
		open = h.join()
	}
	h.mu.Unlock()
	if open {
		h.Notify()
	}
}

func (h *Hearing) count(hears bool) {
	h.heard++
	h.hears = hears
}

// Heard returns a number that rises with each report, and with the begin and the end of each connection, and whether a connection is
// open.
func (h *Hearing) Heard() (reports uint64, hears bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.heard, h.hears
}

// FailingCalls reports the connection while it cannot be opened. See storekit.FailingCaller.
func (h *Hearing) FailingCalls() []outmill.FailingCall {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.on == nil {
		return nil
	}
	return h.on.calls.FailingCalls()
}

// Close ends the use of the connection, and closes the Notifier.
func (h *Hearing) Close() {
	h.mu.Lock()
	h.closed = true
	h.leave()
	h.mu.Unlock()
	h.ends.Wait()
	h.Notifier.Close()
}

// connections are those of this process.
var connections registry

type registry struct {
	mu    sync.Mutex
	known map[any]*Ears
	// refused are those that a server does not allow, and in place of which there are others.
	refused map[any]bool
}

// join has the Hearing use its connection, and reports whether it is open. The first one begins it.
func (r *registry) join(h *Hearing, l Listener) (e *Ears, open bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l.Else != nil && r.refused[l.Of] {
		l = *l.Else
	}
	e = r.known[l.Of]
	if e == nil {
		e = &Ears{of: l.Of, users: map[*Hearing]string{}}
		e.ctx, e.end = context.WithCancel(context.Background())
		if r.known == nil {
			r.known, r.refused = map[any]*Ears{}, map[any]bool{}
		}
		r.known[l.Of] = e
		e.work.Go(func() { e.keep(l) })
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.users[h] = l.Part
	return e, e.open
}

// leave reports whether the Hearing was the last that used the connection.
func (r *registry) leave(h *Hearing, e *Ears) (last bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.users, h)
	if len(e.users) > 0 {
		return false
	}
	if r.known[e.of] == e {
		delete(r.known, e.of)
	}
	return true
}

func (r *registry) refuse(of any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused[of] = true
}

// Ears are the stores that share a connection.
type Ears struct {
	of    any
	ctx   context.Context
	end   context.CancelFunc
	work  sync.WaitGroup
	calls storekit.CallLog

	mu    sync.Mutex
	users map[*Hearing]string
	open  bool
	// begun is when the last connection was opened.
	begun time.Time
}

func (e *Ears) keep(l Listener) {
	told := false
	for waits := storekit.NewWaits(firstReconnect, lastReconnect); e.ctx.Err() == nil; {
		err := l.Listen(e.ctx, e)
		worked := e.close()
		if e.ctx.Err() != nil {
			return
		}
		if worked {
			told = false
			waits.Reset()
		}
		refused := errors.Is(err, ErrNotAllowed)
		if refused && l.Else != nil {
			l.Log.Error(fmt.Sprintf("No %s: each store gets a %s", l.What, l.Else.What), err, nil)
			connections.refuse(l.Of)
			for _, h := range e.all() {
				h.otherwise(e)
			}
			return
		}
		e.calls.Note(e.ctx, storekit.CallListen, "", time.Time{}, err)
		text := fmt.Sprintf("No %s; readers poll until it works again", l.What)
		switch {
		case refused:
			l.Log.Error(fmt.Sprintf("No %s, so readers poll; turn it off in the configuration to avoid the attempt", l.What), err, nil)
			return
		case err != nil && told:
			l.Log.Debug(text, map[string]any{"err": err.Error()})
		case err != nil:
			told = true
			l.Log.Error(text, err, nil)
		}
		_ = waits.Wait(e.ctx)
	}
}

func (e *Ears) all() []*Hearing {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Keys(e.users))
}

// close notes that the connection has ended, and returns whether it has worked: one that breaks as soon as it is open has not.
func (e *Ears) close() (worked bool) {
	e.mu.Lock()
	worked, e.open = e.open && time.Since(e.begun) >= lastReconnect, false
	e.mu.Unlock()
	for _, h := range e.all() {
		h.note(e, false)
	}
	return worked
}

// note counts a report, unless the Hearing has left the connection.
func (h *Hearing) note(of *Ears, hears bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.on == of {
		h.count(hears)
	}
}

// Begin notes that the connection is open. What was committed before is not reported any more, so it wakes for any topic.
func (e *Ears) Begin() {
	e.mu.Lock()
	e.open, e.begun = true, time.Now()
	e.mu.Unlock()
	e.calls.Note(e.ctx, storekit.CallListen, "", time.Time{}, nil)
	for _, h := range e.all() {
		h.note(e, true)
		h.Notify()
	}
}

// Report counts a report of a part, also one that wakes nobody; no part stands for all. With wakes it wakes for the topics, and without
// topics for any.
func (e *Ears) Report(part string, wakes bool, topics ...string) {
	e.mu.Lock()
	var users []*Hearing
	for h, of := range e.users {
		if part == "" || of == part {
			users = append(users, h)
		}
	}
	e.mu.Unlock()
	for _, h := range users {
		h.note(e, true)
		if wakes {
			h.Notify(topics...)
		}
	}
}
