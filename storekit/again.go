package storekit

import "context"

type againKey struct{}

// forgetting is what forgets, where a function in a transaction runs again.
type forgetting struct {
	mark func() (forget func())
	next *forgetting
}

// OnAgain returns a context for code that notes, outside of a transaction, what is done
// inside: where Transact runs its function again, that must be forgotten. Transact calls
// mark before it first runs the function, and forget before each further run. A publisher's
// receipt is such a note.
func OnAgain(ctx context.Context, mark func() (forget func())) context.Context {
	next, _ := ctx.Value(againKey{}).(*forgetting)
	return context.WithValue(ctx, againKey{}, &forgetting{mark, next})
}

// Forgetful returns fn for a Transact that may run it again: from its second run on it
// first forgets what was noted in ctx since the first one began (see [OnAgain]). Its runs
// come one after the other.
func Forgetful(ctx context.Context, fn func(ctx context.Context) error) func(ctx context.Context) error {
	first, _ := ctx.Value(againKey{}).(*forgetting)
	if first == nil || fn == nil {
		return fn
	}
	var forgets []func()
	return func(ctx context.Context) error {
		if forgets == nil {
			for n := first; n != nil; n = n.next {
				forgets = append(forgets, n.mark())
			}
		} else {
			for _, forget := range forgets {
				forget()
			}
		}
		return fn(ctx)
	}
}
