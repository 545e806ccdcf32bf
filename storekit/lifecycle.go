package storekit

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/outmill/outmill"
)

// Lifecycle records whether a store is open and whether its schema was checked, and has the
// store's workers. The zero value is open and not checked, and has none. It is safe for
// concurrent use.
type Lifecycle struct {
	closed, checked atomic.Bool
	workers         workers
}

// Attach adds a worker that leaves before the store closes. See Attacher.
func (l *Lifecycle) Attach(leave func(ctx context.Context)) (detach func(), err error) {
	return l.workers.attach(leave)
}

// End has the workers leave, at most for about LeaveTimeout, and then closes the store. It
// reports whether this call is the first; a further call returns when the store is closed.
func (l *Lifecycle) End() bool {
	return l.workers.end(func() { l.closed.Store(true) })
}

// Closed reports whether End has closed the store.
func (l *Lifecycle) Closed() bool { return l.closed.Load() }

// Usable returns outmill.ErrClosed after End, and the error of ctx if ctx has ended.
func (l *Lifecycle) Usable(ctx context.Context) error {
	if l.closed.Load() {
		return outmill.ErrClosed
	}
	return ctx.Err()
}

// Ready does the work of Usable, and also runs check until it has succeeded once. check
// usually reads the version of the schema, or creates the schema.
func (l *Lifecycle) Ready(ctx context.Context, check func(ctx context.Context) error) error {
	if err := l.Usable(ctx); err != nil || l.checked.Load() {
		return err
	}
	if err := check(ctx); err != nil {
		return err
	}
	l.checked.Store(true)
	return nil
}

// CheckAgain makes the next Ready run its check.
func (l *Lifecycle) CheckAgain() { l.checked.Store(false) }

// Explain wraps err in outmill.ErrClosed if the store is closed.
func (l *Lifecycle) Explain(err error) error {
	if err != nil && l.closed.Load() && !errors.Is(err, outmill.ErrClosed) {
		return fmt.Errorf("%w: %w", outmill.ErrClosed, err)
	}
	return err
}
