package worker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// lookEvery is the time between two looks at the calls that fail, which cost no call of the store.
const lookEvery = 5 * time.Second

// Failing knows which calls fail of those that a subscriber or forwarder repeats by itself. Its
// methods may be called concurrently.
type Failing struct {
	// CallLog has the results of its own calls.
	storekit.CallLog
	// others are its store and its janitor, which may have the role storekit.FailingCaller.
	others []any
	name   reportName

	mu sync.Mutex
	// told are the calls that the last registration has reported.
	told []outmill.FailingCall
}

// sameName has all Failing of this process.
var sameName namesakes[*Failing]

// NewFailing returns one for a worker that registers the group under that name. It also reports the failing
// calls of others. The caller calls leave when the worker ends.
func NewFailing(queue outmill.Queue, group, name string, others ...any) (f *Failing, leave func()) {
	f = &Failing{others: append([]any{queue}, others...), name: reportNameOf(queue, group, name)}
	if f.name.store == nil {
		return f, func() {}
	}
	sameName.add(f.name, f)
	return f, func() { sameName.remove(f.name, f) }
}

// FailingCalls has the calls that fail now. See storekit.FailingCaller.
func (f *Failing) FailingCalls() []outmill.FailingCall {
	return storekit.FailingOf(append([]any{&f.CallLog}, f.others...)...)
}

// toTell has the calls that fail of all workers of the name, without registrations: one that arrives has not
// failed, and of one that does not arrive the store tells by when the last one did.
func (f *Failing) toTell() []outmill.FailingCall {
	callers := []any{f}
	for _, other := range sameName.of(f.name) {
		callers = append(callers, other)
	}
	list := slices.DeleteFunc(storekit.FailingOf(callers...), func(c outmill.FailingCall) bool { return c.Call == storekit.CallRegister })
	return list[:min(len(list), storekit.MaxFailing)]
}

// ToRegister returns the calls that a registration reports.
func (f *Failing) ToRegister() []outmill.FailingCall {
	list := f.toTell()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = list
	return list
}

// Report calls tell soon after a call has failed for storekit.FailingFor, and after one that a
// registration has reported works again, until ctx ends.
func (f *Failing) Report(ctx context.Context, tell func(ctx context.Context) error) {
	f.report(ctx, lookEvery, storekit.FailingFor, tell)
}

func (f *Failing) report(ctx context.Context, every, limit time.Duration, tell func(ctx context.Context) error) {
	for storekit.Pause(ctx, every) == nil {
		if f.isOutdated(limit) {
			// If it fails, the next round of the upkeep registers again.
			_ = tell(ctx)
		}
	}
}

// isOutdated reports whether the last registration lacks a call that has failed for the limit, or has one
// that works again.
func (f *Failing) isOutdated(limit time.Duration) bool {
	now := f.toTell()
	f.mu.Lock()
	defer f.mu.Unlock()
	lacks := func(list []outmill.FailingCall, call outmill.FailingCall) bool {
		return !slices.ContainsFunc(list, func(c outmill.FailingCall) bool {
			return c.Call == call.Call && c.Part == call.Part && c.Store == call.Store
		})
	}
	for _, call := range now {
		if time.Since(call.Since) > limit && lacks(f.told, call) {
			return true
		}
	}
	return slices.ContainsFunc(f.told, func(call outmill.FailingCall) bool { return lacks(now, call) })
}
