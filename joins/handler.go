package joins

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/subscriber"
)

// Defaults of Config.
const (
	DefaultHandlerName = "join.wait"
	DefaultSnooze      = 5 * time.Second
)

// Config has the settings of the handler. Store must be set.
type Config struct {
	// Store has the joins. It must be the store that the subscriber reads and to which Wait
	// publishes.
	Store roles.Joins

	// HandlerName is the handler's name in the router. Default "join.wait".
	HandlerName string

	// Snooze is the longest time between two checks of a join that is not decided. Default 5
	// s. It delays neither the step that decides a join nor the join's deadline.
	Snooze time.Duration
}

// Validate returns an outmill.ErrInvalidConfig for every invalid setting, joined.
// AddHandlers calls it.
func (c Config) Validate() error {
	var errs []error
	if outmill.IsNil(c.Store) {
		errs = append(errs, fmt.Errorf("%w: joins.Config.Store is nil: want the store of the joins", outmill.ErrInvalidConfig))
	}
	if c.Snooze < 0 {
		errs = append(errs, fmt.Errorf("%w: joins.Config.Snooze is %s: want a duration above 0", outmill.ErrInvalidConfig, c.Snooze))
	}
	return errors.Join(errs...)
}

// AddHandlers adds the handler that ends joins to the router. It reads Topic through sub, a
// subscriber.Subscriber for Config.Store or a decorator of one. It needs no publisher: the
// store appends the message that follows a join in the transaction in which the join ends.
// Routers of several processes may all have the handler.
//
// The handler includes the middleware subscriber.KeepError, which snoozes the message while
// the join is not decided. The router and its middlewares see real errors, but not these
// snoozes. Do not use a subscriber with outmill.OrderTopic, because one join would delay
// all others.
//
// A message goes dead at once, with the reason, if no retry can help: Wait did not publish
// it, the join is unknown or has more steps than the number for its seal, or the store
// refuses the message that follows. It may be requeued when the reason is gone. Other
// errors are retried by the subscriber's policy.
//
// AddHandlers returns the handler, so that the caller can add middlewares or stop it. It
// returns outmill.ErrInvalidConfig for a nil router or subscriber, a name that is taken, or
// an invalid Config. If the router is running already, call its RunHandlers afterwards.
func AddHandlers(router *message.Router, sub message.Subscriber, cfg Config) (*message.Handler, error) {
	if router == nil || outmill.IsNil(sub) {
		return nil, fmt.Errorf("%w: joins.AddHandlers: the router or the subscriber is nil", outmill.ErrInvalidConfig)
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	h := &handler{
		store:  cfg.Store,
		snooze: cmp.Or(cfg.Snooze, DefaultSnooze),
		log:    router.Logger(),
	}
	added, err := addHandler(router, cmp.Or(cfg.HandlerName, DefaultHandlerName), Topic, sub, h.handle)
	if err != nil {
		return nil, fmt.Errorf("%w: joins.AddHandlers: %w", outmill.ErrInvalidConfig, err)
	}
	added.AddMiddleware(subscriber.KeepError)
	return added, nil
}

type handler struct {
	store  roles.Joins
	snooze time.Duration
	log    watermill.LoggerAdapter
}

// handle ends the join of the message, or snoozes the message.
func (h *handler) handle(msg *message.Message) error {
	p, err := decode(msg.Payload)
	if err != nil {
		return err
	}
	result, err := h.store.FinishJoin(msg.Context(), p.Join, roles.FinishRequest{
		FailIfAnyStepFailed: p.FailIfAnyStepFailed,
		Seal:                p.Seal,
		ExpectedSteps:       p.ExpectedSteps,
		Then:                func(join roles.Join) (*outmill.Record, error) { return p.record(join, msg) },
	})
	if err != nil {
		return judged(fmt.Errorf("outmill: finish join %s: %w", p.Join, err))
	}
	join := result.Join
	if join.Status == roles.JoinPending {
		return outmill.Snooze(h.pause(result.DeadlineIn))
	}
	if result.Finished {
		delivery, _ := outmill.Delivery(msg.Context())
		h.log.Info("Join ended", watermill.LogFields{
			"store":           delivery.Store,
			"join_id":         join.ID.String(),
			"grouping_key":    join.GroupingKey,
			"status":          string(join.Status),
			"reason":          join.Reason,
			"expected_steps":  join.ExpectedSteps,
			"completed_steps": join.CompletedSteps,
			"failed_steps":    join.FailedSteps,
			"correlation_id":  msg.Metadata.Get(outmill.MetadataCorrelationID),
		})
	}
	return nil
}

// pause returns the snooze, which ends at the deadline at the latest.
func (h *handler) pause(deadlineIn time.Duration) time.Duration {
	if deadlineIn > 0 {
		return min(h.snooze, deadlineIn)
	}
	return h.snooze
}

// judged marks the errors that another attempt would return again as permanent.
func judged(err error) error {
	for _, forGood := range []error{
		roles.ErrUnknownJoin, roles.ErrTooManySteps, outmill.ErrInvalidRecord,
	} {
		if errors.Is(err, forGood) {
			return outmill.Permanent(err)
		}
	}
	return err
}
