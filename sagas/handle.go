package sagas

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/crash"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// commitMargin is the time that a transaction needs besides its handler. It is part of the
// store's limit for transactions.
const commitMargin = 5 * time.Second

func (s *Saga[State]) handle(topic string, msg *message.Message) error {
	ctx := msg.Context()
	if limit := s.transact.TxLimit(); limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit-commitMargin)
		defer cancel()
	}
	if err := s.sagas.PrepareSagas(ctx, s.kind); err != nil {
		return err
	}
	// last is the error of the last run. A store that repeats runs may return a timeout
	// instead, which would hide a conflict.
	var last error
	err := storekit.TransactPatiently(ctx, s.transact, func(ctx context.Context) error {
		// A run may change the message, so each run gets a copy of the original.
		own := msg.Copy()
		own.SetContext(ctx)
		last = s.work(ctx, topic, own)
		return last
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrConflict), errors.Is(err, ErrStarted), errors.Is(last, ErrConflict), errors.Is(last, ErrStarted):
		return &storekit.Collision{Err: errors.Join(err, last), Delay: s.cfg.ConflictDelay/2 + rand.N(s.cfg.ConflictDelay+1), Counts: true}
	case errors.Is(err, outmill.ErrInvalidRecord):
		return outmill.Permanent(err)
	}
	return err
}

// work finds the saga, runs the handler and stores the saga, in the transaction of ctx.
func (s *Saga[State]) work(ctx context.Context, topic string, msg *message.Message) error {
	r, known := s.routes.of(topic, s.cfg.Marshaler.NameFromMessage(msg))
	if !known {
		return s.unknown(topic, msg)
	}
	correlation, handle, err := r.open(msg, s.cfg.Marshaler)
	if err == nil && correlation == "" {
		err = ErrNoCorrelation
	}
	if err != nil {
		return s.refuse(topic, msg, err)
	}
	c := &Context[State]{
		Context: ctx, State: new(State), Message: msg, Correlation: correlation,
		publisher: s.publisher, marshaler: s.cfg.Marshaler,
	}
	saga, err := s.sagas.FindSaga(c, s.kind, correlation, c.State, s.cfg.Options)
	crash.At("found")
	starts := errors.Is(err, roles.ErrSagaNotFound)
	switch {
	case err != nil && !starts:
		return err
	case starts && !r.starts, !starts && saga.Finished:
		return s.notFound(c, r)
	case r.timely && msg.Metadata.Get(MetadataID) != saga.ID.String():
		return nil
	case starts:
		saga = &roles.Saga{ID: outmill.NewWorkItemID(), Type: s.kind, Correlation: correlation}
	}
	c.ID = saga.ID
	if err := handle(c); err != nil {
		return err
	}
	crash.At("reacted")
	err = s.store(c, saga, starts)
	crash.At("stored")
	return err
}

// store inserts, updates or deletes the saga after its handler.
func (s *Saga[State]) store(c *Context[State], saga *roles.Saga, starts bool) (err error) {
	gone := c.completed && !s.cfg.KeepFinished
	saga.Finished = c.completed
	retained := saga.Finished && !gone && s.cfg.Retention > 0
	if starts && gone {
		return nil
	}
	var ctx context.Context = c
	if !retained {
		if ctx, err = storekit.Last(c); err != nil {
			return err
		}
	}
	switch {
	case gone:
		return s.sagas.DeleteSaga(ctx, saga, s.cfg.Options)
	case starts:
		err = s.sagas.InsertSaga(ctx, saga, c.State, s.cfg.Options)
	default:
		err = s.sagas.UpdateSaga(ctx, saga, c.State, s.cfg.Options)
	}
	if err == nil && retained {
		crash.At("finished")
		err = s.sagas.RetainSaga(c, saga, s.cfg.Retention, s.cfg.Options)
	}
	return err
}

func (s *Saga[State]) refuse(topic string, msg *message.Message, err error) error {
	return outmill.Permanent(fmt.Errorf("saga %s: message %s of %s: %w", s.kind, msg.UUID, topic, err))
}

func (s *Saga[State]) unknown(topic string, msg *message.Message) error {
	if !s.cfg.AckUnknown {
		return s.refuse(topic, msg, fmt.Errorf("%w: %.300q", ErrUnknownMessage, s.cfg.Marshaler.NameFromMessage(msg)))
	}
	s.cfg.Logger.Debug("Acked a message for which the sagas have no reaction", watermill.LogFields{
		"store": s.cfg.Store.Name(), "saga": s.kind, "topic": topic, "message_uuid": msg.UUID,
	})
	return nil
}

func (s *Saga[State]) notFound(c *Context[State], r Reaction[State]) error {
	if r.timely {
		return nil
	}
	if s.cfg.NotFound != nil {
		return s.cfg.NotFound(c.Message, c.Correlation)
	}
	s.cfg.Logger.Info("Acked a message whose saga does not exist or is finished", watermill.LogFields{
		"store": s.cfg.Store.Name(), "saga": s.kind, "topic": r.topic, "message_uuid": c.Message.UUID, "correlation": c.Correlation,
	})
	return nil
}
