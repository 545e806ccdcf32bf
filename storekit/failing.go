package storekit

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/outmill/outmill"
)

// The kinds of calls that a program repeats by itself. See outmill.FailingCall.
const (
	// CallClaim is the claim of a subscriber or forwarder.
	CallClaim = "claim"
	// CallSettle stores outcomes; its parts are ack, abandon, fail, snooze and release.
	CallSettle = "settle"
	// CallExtend extends leases while handlers run.
	CallExtend = "extend"
	// CallRegister renews the registration of a group.
	CallRegister = "register"
	// CallUpkeep is a batch of the janitor; its parts are the janitor's kinds of work.
	CallUpkeep = "upkeep"
	// CallMaintain is Maintain of outmill.Janitor.
	CallMaintain = "maintain"
	// CallListen is the connection, or the change stream, by which a store hears of the commits of
	// other processes.
	CallListen = "listen"
	// CallDiscover asks which tenants there are, for a set of stores.
	CallDiscover = "discover"
)

// Calls are all kinds of calls that a program repeats by itself.
var Calls = []string{CallClaim, CallSettle, CallExtend, CallRegister, CallUpkeep, CallMaintain, CallListen, CallDiscover}

// EndsDelivery reports whether messages are not delivered, or come again, while the call fails. A member of a
// set does not stop the others, and without upkeep or a listening connection delivery goes on.
func EndsDelivery(call outmill.FailingCall) bool {
	switch call.Call {
	case CallClaim, CallSettle, CallExtend, CallRegister:
		return call.Store == ""
	}
	return false
}

// FailingFor is how long a call may fail, without a success, before it is a finding of
// monitor.Doctor and of monitor.Health.
const FailingFor = time.Minute

// forgottenAfter is when a call that is made only if there is work for it no longer counts as
// failing: its last attempt was so long ago that there is no such work any more.
const forgottenAfter = 2 * time.Minute

// MaxFailing is the most failing calls that a registration reports.
const MaxFailing = 20

// FailingCaller is the role of whatever repeats calls by itself: a store that listens, a set of
// stores, and the clients of a store. It reports its calls that have failed since their last
// success, also those that have failed for a moment only, the one that has failed longest first.
type FailingCaller interface {
	FailingCalls() []outmill.FailingCall
}

// CallLog notes the results of calls that are repeated, and knows which ones fail. The zero value is
// ready to use. It is safe for concurrent use.
type CallLog struct {
	mu      sync.Mutex
	failing map[callPart]*callFailure
	// clock is time.Now if it is nil.
	clock func() time.Time
}

type callPart struct{ call, part string }

type callFailure struct {
	since, last time.Time
	times       int
	err         error
}

func (l *CallLog) now() time.Time {
	if l.clock == nil {
		return time.Now()
	}
	return l.clock()
}

// Note notes the result of a call that began at began; zero is now. It leaves out a call whose caller has
// ended it: pass the context that the caller ends, and not the one that limits the time of the call. A
// *PartialError of some of several stores counts as a success, because the set of these stores
// notes the failures of each.
func (l *CallLog) Note(caller context.Context, call, part string, began time.Time, err error) {
	if err != nil && (caller.Err() != nil || errors.Is(err, outmill.ErrClosed)) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	key := callPart{call, part}
	if err == nil || SomeAnswered(err) {
		delete(l.failing, key)
		return
	}
	now := l.now()
	if began.IsZero() {
		began = now
	}
	f := l.failing[key]
	if f == nil {
		f = &callFailure{since: began}
		if l.failing == nil {
			l.failing = map[callPart]*callFailure{}
		}
		l.failing[key] = f
	}
	f.last, f.err = now, err
	f.times++
}

// Forget has the log forget the calls of these kinds, which are not repeated any more; none is all
// kinds.
func (l *CallLog) Forget(calls ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key := range l.failing {
		if len(calls) == 0 || slices.Contains(calls, key.call) {
			delete(l.failing, key)
		}
	}
}

// FailingCalls returns the calls that fail, the one that has failed longest first. Calls that
// settle or extend leases are left out 2 minutes after the last attempt, because without new
// attempts they have nothing to do.
func (l *CallLog) FailingCalls() []outmill.FailingCall {
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []outmill.FailingCall
	now := l.now()
	for key, f := range l.failing {
		if (key.call == CallSettle || key.call == CallExtend) && now.Sub(f.last) > forgottenAfter {
			delete(l.failing, key)
			continue
		}
		list = append(list, outmill.FailingCall{
			Call: key.call, Part: key.part, Since: f.since.UTC().Truncate(time.Millisecond), Times: f.times, Err: ErrorText(f.err),
		})
	}
	return sortFailing(list)
}

func sortFailing(list []outmill.FailingCall) []outmill.FailingCall {
	slices.SortFunc(list, func(a, b outmill.FailingCall) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Call, b.Call), cmp.Compare(a.Part, b.Part), cmp.Compare(a.Store, b.Store))
	})
	return list
}

// FailingOf returns the failing calls of several callers, each once, the one that has failed longest
// first. A caller that lacks the role [FailingCaller], also behind wrappers of a store, has none.
func FailingOf(callers ...any) []outmill.FailingCall {
	var list []outmill.FailingCall
	known := map[outmill.FailingCall]bool{}
	for _, caller := range callers {
		if c, ok := outmill.As[FailingCaller](caller); ok {
			for _, call := range c.FailingCalls() {
				if !known[call] {
					known[call] = true
					list = append(list, call)
				}
			}
		}
	}
	return sortFailing(list)
}

// InMember returns the calls as those of the member of a set.
func InMember(calls []outmill.FailingCall, member string) []outmill.FailingCall {
	list := slices.Clone(calls)
	for i := range list {
		if list[i].Store == "" {
			list[i].Store = member
		}
	}
	return list
}
