package main

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
)

// leaveWithin bounds each part of the tidying at the end.
const leaveWithin = 15 * time.Second

// names are those of one run and of no other, since the store may be one that others
// use too, at the same time or after a run that was interrupted.
type names struct {
	run                 string
	orders, poison      string // topics
	handlers, forwarder string // groups
}

func newNames() names {
	run := "quickstart-" + watermill.NewShortUUID()
	return names{
		run:       run,
		orders:    run + ".orders",
		poison:    run + ".orders.poison",
		handlers:  run + ".handlers",
		forwarder: run + ".forwarder",
	}
}

// leave takes the groups, which nobody reads from now on, out of the store, also
// when the run was interrupted.
func (n names) leave(ctx context.Context, store outmill.Inspector) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer cancel()
	var errs []error
	for _, group := range []string{n.handlers, n.forwarder} {
		_, err := store.DropGroup(ctx, group)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
