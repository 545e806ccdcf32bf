package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outmill/outmill"
)

// Limits of calls for which nothing else has one. A connection of which nothing is heard any more
// would keep such a call for many minutes. A store does its work in steps, and finished steps stay
// finished, so a call that reached its limit goes on where it was.
const (
	// UpkeepWithin limits the time of a batch of the janitor and of Maintain.
	UpkeepWithin = time.Minute
	// registersWithin limits the time of a registration, which may have to move all records that
	// waited for a group.
	registersWithin = 2 * time.Minute
)

// lateError is the cause of the end of a call that reached its limit.
type lateError struct{ limit time.Duration }

func (e *lateError) Error() string { return fmt.Sprintf("the store did not answer within %s", e.limit) }

// Bounded runs a call for up to limit. The error of a call that reached it names it.
func Bounded[T any](ctx context.Context, limit time.Duration, call func(context.Context) (T, error)) (T, error) {
	late := &lateError{limit}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	result, err := call(ctx)
	if err != nil && errors.Is(context.Cause(ctx), late) {
		err = fmt.Errorf("%w: %w", late, err)
	}
	return result, err
}

// Register registers groups, within 2 minutes.
func Register(ctx context.Context, queue outmill.Queue, regs ...outmill.Registration) error {
	_, err := Bounded(ctx, registersWithin, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, queue.RegisterGroup(ctx, regs...)
	})
	return err
}
