package joins

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// send handles the record of a step in its home. It publishes the message in the other store
// and snoozes until the step is settled.
//
// It asks the other store first and the home afterwards. The outcome is counted in the home
// before the local join ends, and a store keeps a join until it has ended. So if the local join
// is not there, and afterwards the step is not settled, the message was not sent.
func (r *remote) send(msg *message.Message) error {
	delivery, err := delivered(msg)
	if err != nil {
		return err
	}
	p, err := decodeRemote(msg.Payload)
	fields := watermill.LogFields{"store": delivery.Store, "join_id": p.Join.String(), "step": p.Step.String(), "to": p.Store}
	if err != nil {
		return r.again("Could not read a step for another store: it is tried again", err, delivery, fields)
	}
	status, askErr := r.ask(msg.Context(), delivery, p)
	open, err := r.isOpen(msg.Context(), delivery, p)
	switch {
	case err != nil:
		return r.again("Could not read the join of a step: it is tried again", err, delivery, fields)
	case !open:
		r.log.Debug("A step for another store is settled", fields)
		return nil
	case errors.Is(askErr, roles.ErrUnknownJoin):
		err = r.publish(msg.Context(), delivery, p)
	case askErr != nil:
		err = askErr
	case status != roles.StepPending:
		// The record with the outcome comes too, but perhaps later, and not at all if somebody
		// has deleted it.
		err = r.count(msg.Context(), delivery.Store, p.Join, p.Step, status)
		if err == nil {
			return nil
		}
	}
	if err != nil {
		return r.again("Could not send a step to its store, or ask for its outcome: it is tried again", err, delivery, fields)
	}
	return outmill.Snooze(r.pause(delivery))
}

// ask returns the state of the message in the other store, or roles.ErrUnknownJoin if that
// store does not have the message.
func (r *remote) ask(ctx context.Context, delivery outmill.DeliveryInfo, p remotePayload) (status roles.StepStatus, err error) {
	if r.cfg.Allow != nil && !r.cfg.Allow(delivery.Store, p.Store) {
		return "", outmill.Permanent(fmt.Errorf("%w: from %q to %q", ErrNotAllowed, delivery.Store, p.Store))
	}
	err = r.on(ctx, p.Store, func(ctx context.Context, there place) (err error) {
		status, err = local{delivery.Store, p.Join, p.Step}.outcome(ctx, there)
		return err
	})
	return status, err
}

// isOpen reports whether the join still waits for the step.
func (r *remote) isOpen(ctx context.Context, delivery outmill.DeliveryInfo, p remotePayload) (open bool, err error) {
	err = r.on(ctx, delivery.Store, func(ctx context.Context, home place) error {
		join, err := home.GetJoin(ctx, p.Join)
		if err != nil || join.Status != roles.JoinPending {
			return err
		}
		steps, err := home.ListSteps(ctx, p.Join, before(p.Step), 1)
		open = len(steps) == 1 && steps[0].ID == p.Step && steps[0].Status == roles.StepPending
		return err
	})
	if errors.Is(err, roles.ErrUnknownJoin) {
		return false, nil
	}
	return open, err
}

// before returns the id before this one in the order of ids.
func before(id outmill.WorkItemID) outmill.WorkItemID {
	for i := len(id) - 1; i >= 0; i-- {
		id[i]--
		if id[i] != 0xFF {
			break
		}
	}
	return id
}

// publish writes the message, the local join, and the record that brings its outcome home, in
// one transaction of the other store.
func (r *remote) publish(ctx context.Context, delivery outmill.DeliveryInfo, p remotePayload) error {
	step, err := p.record()
	if err != nil {
		return outmill.Permanent(fmt.Errorf("outmill: send step %s to %q: %w", p.Step, p.Store, err))
	}
	outcome := p.outcome(delivery, step)
	outcome.Delay = r.cfg.Snooze
	err = r.on(ctx, p.Store, func(ctx context.Context, there place) error {
		transactor, ok := outmill.As[roles.Transactor](there.Store)
		if !ok {
			return outmill.Permanent(fmt.Errorf("%w: store %q has no transactions: a %T is no roles.Transactor",
				outmill.ErrInvalidConfig, p.Store, there.Store))
		}
		return storekit.TransactPatiently(ctx, transactor, func(ctx context.Context) error {
			if err := (local{delivery.Store, p.Join, p.Step}).start(ctx, there); err != nil {
				return err
			}
			return there.Append(ctx, step, outcome)
		})
	})
	switch {
	case errors.Is(err, roles.ErrJoinExists):
		// Another handling has sent it.
		return nil
	case errors.Is(err, outmill.ErrInvalidRecord):
		return outmill.Permanent(fmt.Errorf("outmill: send step %s to %q: %w", p.Step, p.Store, err))
	}
	return err
}

// count settles the step in its home. It has no effect if the step is settled.
func (r *remote) count(ctx context.Context, name string, join outmill.JoinID, step outmill.WorkItemID, as roles.StepStatus) error {
	return r.on(ctx, name, func(ctx context.Context, home place) error {
		if as == roles.StepFailed {
			return home.ReportFailed(ctx, join, step)
		}
		return home.ReportCompleted(ctx, join, step)
	})
}
