package main

import (
	"context"
	"errors"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
)

// leaveWithin limits the time of each part of the cleanup at the end.
const leaveWithin = 15 * time.Second

// names belong to one run, because other runs may use the same store, at the same time or after
// an interruption.
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

// leave drops the groups, because no process reads them after the run. It also works after an
// interruption.
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
