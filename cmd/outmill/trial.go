package main

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
)

// errInterrupted is the cause of a context that SIGINT has ended: a person stopped the tool.
var errInterrupted = errors.New("interrupted")

// takeBackFor bounds the time for which a trial that stops takes its group back.
const takeBackFor = 30 * time.Second

// trial is a run of a forwarder whose group was not there before it.
type trial struct {
	store opened
	group string
	log   watermill.LoggerAdapter
}

// newTrial returns nil if the store knows the group, or cannot be asked.
func newTrial(ctx context.Context, store opened, group string, log watermill.LoggerAdapter) *trial {
	groups, err := store.Groups(ctx)
	if err != nil || slices.ContainsFunc(groups, func(g outmill.GroupInfo) bool { return g.Group == group }) {
		return nil
	}
	return &trial{store, group, log}
}

// end drops the group if its destination has never answered, so that a wrong address leaves no group for
// which records pile up. It leaves the group if another forwarder has registered it.
func (t *trial) end(ctx context.Context) {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeBackFor)
	defer cancel()
	if reached, err := t.reached(ctx); err != nil || reached {
		t.failed(err)
		return
	}
	dropped, err := t.store.DropGroup(ctx, t.group)
	if err != nil {
		t.failed(err)
		return
	}
	t.log.Info("The destination never answered and the group was new, so the forwarder has dropped it again", watermill.LogFields{
		"group": t.group, "given_back": dropped.GivenBack, "deleted": dropped.Deleted,
	})
}

func (t *trial) failed(err error) {
	if err != nil {
		t.log.Error("The forwarder could not drop its new group, which gets each message until outmill groups drop removes it", err,
			watermill.LogFields{"group": t.group})
	}
}

// reached reports whether the group has taken what waited, has another worker, or is gone.
func (t *trial) reached(ctx context.Context) (bool, error) {
	groups, err := t.store.Groups(ctx)
	if err != nil {
		return false, err
	}
	i := slices.IndexFunc(groups, func(g outmill.GroupInfo) bool { return g.Group == t.group })
	if i < 0 || len(groups[i].Registrations) == 0 || len(groups[i].Workers) > 1 {
		return true, nil
	}
	return slices.ContainsFunc(groups[i].Registrations, func(r outmill.RegistrationInfo) bool { return !r.Holding }), nil
}
