package joins

import (
	"context"
	"errors"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
)

// settle handles the record that brings the outcome of a step home. When the local join is
// decided, it counts the step in the home, which has no effect if it was counted before, and
// then ends the local join.
func (r *remote) settle(msg *message.Message) error {
	delivery, err := delivered(msg)
	if err != nil {
		return err
	}
	p, err := decodeOutcome(msg.Payload)
	fields := watermill.LogFields{"store": delivery.Store, "join_id": p.Join.String(), "step": p.Step.String(), "home": p.Home}
	if err != nil {
		return r.again("Could not read the outcome of a step: it is tried again", err, delivery, fields)
	}
	mine := local{p.Home, p.Join, p.Step}
	var status roles.StepStatus
	err = r.on(msg.Context(), delivery.Store, func(ctx context.Context, store place) (err error) {
		status, err = mine.outcome(ctx, store)
		return err
	})
	switch {
	case errors.Is(err, roles.ErrUnknownJoin):
		r.log.Debug("The outcome of a step came again: its join has counted it before, and nothing is left to do", fields)
		return nil
	case err != nil:
		return r.again("Could not read the outcome of a step: it is tried again", err, delivery, fields)
	case status == roles.StepPending:
		return outmill.Snooze(r.cfg.Snooze)
	}
	if err := r.bringHome(msg.Context(), delivery, p, status, fields); err != nil {
		return r.again("Could not count a step in the store of its join: it is tried again", err, delivery, fields)
	}
	ended := false
	err = r.on(msg.Context(), delivery.Store, func(ctx context.Context, store place) (err error) {
		ended, err = mine.end(ctx, store)
		return err
	})
	switch {
	case err != nil:
		return r.again("Could not end the join of one step: it is tried again", err, delivery, fields)
	case !ended:
		return outmill.Snooze(r.cfg.Snooze)
	}
	return nil
}

// bringHome counts the step in its home. It ignores the outcome if the home does not wait for it any
// more, as after the first success of a join that waits for any of its steps.
func (r *remote) bringHome(ctx context.Context, delivery outmill.DeliveryInfo, p outcomePayload, status roles.StepStatus,
	fields watermill.LogFields) error {
	err := r.checkSent(ctx, delivery, p)
	if err == nil {
		err = r.count(ctx, p.Home, p.Join, p.Step, status)
	}
	for _, gone := range []error{outmill.ErrNotFound, roles.ErrUnknownJoin, roles.ErrUnknownStep} {
		if errors.Is(err, gone) {
			r.log.Debug("The outcome of a step changes nothing: its join has counted it before, or has ended",
				fields.Add(watermill.LogFields{"reason": err.Error()}))
			return nil
		}
	}
	return err
}

// checkSent returns ErrForeignOutcome if the home has sent the step to another store than
// the one that the outcome comes from. The record in the home says where it was sent. If the
// record is gone, the step is settled.
func (r *remote) checkSent(ctx context.Context, delivery outmill.DeliveryInfo, p outcomePayload) error {
	var record *outmill.Record
	err := r.on(ctx, p.Home, func(ctx context.Context, home place) (err error) {
		record, err = home.Get(ctx, p.Record)
		return err
	})
	if err != nil {
		return err
	}
	sent, err := decodeRemote(record.Payload)
	switch {
	case errors.Is(err, errNewer):
		return err
	case err != nil || record.Topic != RemoteTopic || sent.Join != p.Join || sent.Step != p.Step:
		return outmill.Permanent(fmt.Errorf("%w: record %s of %q is not step %s of join %s", ErrForeignOutcome, p.Record, p.Home, p.Step, p.Join))
	case sent.Store != delivery.Store:
		return outmill.Permanent(fmt.Errorf("%w: %q sent step %s to %q, and the outcome is from %q", ErrForeignOutcome,
			p.Home, p.Step, sent.Store, delivery.Store))
	}
	return nil
}
