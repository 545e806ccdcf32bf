package sqlkit

import (
	"context"
	"errors"

	"github.com/outmill/outmill/engine/driver"
	"github.com/outmill/outmill/storekit"
)

// Judge says what the errors of a server mean for a transaction of database/sql that a driver has begun.
type Judge struct {
	// Lost reports whether the connection has broken.
	Lost func(err error) bool
	// MayBeCommitted reports whether a COMMIT with this error may have taken effect.
	MayBeCommitted func(err error) bool
	// Transient reports whether the same transaction may succeed if it runs again.
	Transient func(err error) bool
}

// errConnectionLost says that the connection was lost before the COMMIT was sent, so that nothing has been written.
var errConnectionLost = errors.New("the connection was lost before the commit")

// CommitError is the error of a commit. Such a transaction is not repeated: the second run would not know the changes of the first.
type CommitError struct{ error }

// Unwrap returns the error.
func (e CommitError) Unwrap() error { return e.error }

// Run runs fn, and commits if it returns nil and ctx has not ended. If the commit is in doubt, the error says so.
func (j Judge) Run(ctx context.Context, fn, commit func() error) error {
	if err := fn(); err != nil {
		return j.BeforeCommit(ctx, err)
	}
	// Commit does nothing then.
	if err := ctx.Err(); err != nil {
		return err
	}
	return j.Committed(commit())
}

// BeforeCommit marks the error of a connection that was lost while ctx had not ended.
func (j Judge) BeforeCommit(ctx context.Context, err error) error {
	if err != nil && storekit.Ended(ctx) == nil && j.Lost(err) {
		err = errors.Join(errConnectionLost, err)
	}
	return err
}

// Committed marks the error of a commit.
func (j Judge) Committed(err error) error {
	if err == nil {
		return nil
	}
	if j.MayBeCommitted(err) {
		err = storekit.CommitInDoubt(err)
	}
	return CommitError{err}
}

// Passes reports whether a transaction of the driver's own may succeed if it runs again.
func (j Judge) Passes(err error) bool {
	if errors.As(err, new(CommitError)) {
		return false
	}
	return errors.Is(err, errConnectionLost) || errors.Is(err, driver.ErrBusy) || j.Transient(err)
}

// PassesForCaller is Passes for a transaction with a function of the caller, which may have met a commit that nobody knows of.
func (j Judge) PassesForCaller(err error) bool {
	return j.Passes(err) && !errors.Is(err, storekit.ErrCommitInDoubt)
}
