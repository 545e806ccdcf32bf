package sagas

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/subscriber"
)

// Reaction is what a kind of sagas does with the messages of a topic.
type Reaction[State any] struct {
	topic          string
	starts, timely bool
	open           func(msg *message.Message) (correlation string, handle func(*Context[State]) error, err error)
}

// StartedBy starts a saga where there is none with the message's correlation value, and
// is On where there is one. Payloads are JSON of M.
func StartedBy[State, M any](topic string, correlate func(M) string, handle func(*Context[State], M) error) Reaction[State] {
	r := On(topic, correlate, handle)
	r.starts = true
	return r
}

// On handles the messages of a saga that exists. Payloads are JSON of M.
func On[State, M any](topic string, correlate func(M) string, handle func(*Context[State], M) error) Reaction[State] {
	return reaction(topic, func(_ *message.Message, m M) string { return correlate(m) }, handle)
}

// Timeout handles what Context.Timeout published to the topic. A timeout of a saga that
// is finished or gone is acked.
func Timeout[State, M any](topic string, handle func(*Context[State], M) error) Reaction[State] {
	r := reaction(topic, func(msg *message.Message, _ M) string { return msg.Metadata.Get(MetadataCorrelation) }, handle)
	r.timely = true
	return r
}

func reaction[State, M any](topic string, correlate func(*message.Message, M) string,
	handle func(*Context[State], M) error) Reaction[State] {
	return Reaction[State]{topic: topic, open: func(msg *message.Message) (string, func(*Context[State]) error, error) {
		var m M
		if err := json.Unmarshal(msg.Payload, &m); err != nil {
			return "", nil, err
		}
		return correlate(msg, m), func(c *Context[State]) error { return handle(c, m) }, nil
	}}
}

// Saga is a kind of sagas. It is safe for concurrent use.
type Saga[State any] struct {
	cfg       Config
	kind      string
	reactions []Reaction[State]
	sagas     storekit.Sagas
	transact  storekit.Transactor
	publisher message.Publisher
}

// Define makes a kind of sagas with the state State, a struct. Errors:
// outmill.ErrInvalidConfig.
func Define[State any](cfg Config, reactions ...Reaction[State]) (*Saga[State], error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	s := &Saga[State]{cfg: cfg, kind: cfg.TypeName(nameOf[State]()), reactions: reactions}
	var keeps, transacts bool
	s.sagas, keeps = outmill.As[storekit.Sagas](cfg.Store)
	s.transact, transacts = outmill.As[storekit.Transactor](cfg.Store)
	if !keeps || !transacts {
		return nil, fmt.Errorf("%w: sagas.Config.Store is a %T, which keeps no sagas: want a storekit.Sagas and storekit.Transactor",
			outmill.ErrInvalidConfig, cfg.Store)
	}
	if err := errors.Join(storekit.CheckSagaType(s.kind), storekit.CheckSagaState(new(State))); err != nil {
		return nil, fmt.Errorf("%w: sagas.Define: %w", outmill.ErrInvalidConfig, err)
	}
	topics := map[string]bool{}
	for _, r := range reactions {
		if r.topic == "" || topics[r.topic] {
			return nil, fmt.Errorf("%w: sagas.Define: topic %q is empty or twice there: want one reaction for each topic", outmill.ErrInvalidConfig,
				r.topic)
		}
		topics[r.topic] = true
	}
	pub, err := publisher.New(cfg.Store, publisher.Config{RequireTx: true}, cfg.Logger)
	s.publisher = pub
	return s, err
}

// AddHandlers adds a handler for each topic to the router, named after the kind and the
// topic, with subscriber.KeepError. sub is a subscriber.Subscriber over Config.Store.
// Errors: outmill.ErrInvalidConfig, for a name that is taken too.
func (s *Saga[State]) AddHandlers(router *message.Router, sub message.Subscriber) (err error) {
	if router == nil || outmill.IsNil(sub) {
		return fmt.Errorf("%w: sagas: the router or the subscriber is nil", outmill.ErrInvalidConfig)
	}
	// The router panics for a name that is taken.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: sagas: %v", outmill.ErrInvalidConfig, r)
		}
	}()
	for _, r := range s.reactions {
		handler := func(msg *message.Message) error { return s.handle(r, msg) }
		router.AddConsumerHandler(s.kind+":"+r.topic, r.topic, sub, handler).AddMiddleware(subscriber.KeepError)
	}
	return nil
}

// DeleteFinished deletes up to limit sagas that finished longer ago than retention, and
// returns how many it did.
func (s *Saga[State]) DeleteFinished(ctx context.Context, retention time.Duration, limit int) (int, error) {
	return s.sagas.DeleteFinishedSagas(ctx, s.kind, retention, limit)
}

func (s *Saga[State]) handle(r Reaction[State], msg *message.Message) error {
	correlation, handle, err := r.open(msg)
	if err == nil && correlation == "" {
		err = ErrNoCorrelation
	}
	if err != nil {
		return outmill.Permanent(fmt.Errorf("saga %s: message %s of %s: %w", s.kind, msg.UUID, r.topic, err))
	}
	ctx := msg.Context()
	defer msg.SetContext(ctx)
	if err := s.sagas.PrepareSagas(ctx, s.kind); err != nil {
		return err
	}
	err = s.transact.Transact(ctx, func(ctx context.Context) error {
		msg.SetContext(ctx)
		return s.work(&Context[State]{Context: ctx, State: new(State), Message: msg, Correlation: correlation, publisher: s.publisher}, r, handle)
	})
	switch {
	case errors.Is(err, ErrConflict), errors.Is(err, ErrStarted):
		return &conflict{err, outmill.Snooze(s.cfg.ConflictDelay/2 + rand.N(s.cfg.ConflictDelay+1))}
	case errors.Is(err, outmill.ErrInvalidRecord):
		return outmill.Permanent(err)
	}
	return err
}

// work runs the handler on the saga, within its transaction.
func (s *Saga[State]) work(c *Context[State], r Reaction[State], handle func(*Context[State]) error) error {
	saga, err := s.sagas.FindSaga(c, s.kind, c.Correlation, c.State, s.cfg.Options)
	missing := errors.Is(err, storekit.ErrSagaNotFound)
	switch {
	case err != nil && !missing:
		return err
	case missing && !r.starts || !missing && saga.Finished:
		return s.notFound(c, r)
	}
	if err := handle(c); err != nil {
		return err
	}
	switch {
	case missing && c.completed && !s.cfg.KeepFinished:
		return nil
	case missing:
		return s.sagas.InsertSaga(c, &storekit.Saga{Type: s.kind, Correlation: c.Correlation, Finished: c.completed}, c.State, s.cfg.Options)
	case c.completed && !s.cfg.KeepFinished:
		return s.sagas.DeleteSaga(c, saga, s.cfg.Options)
	}
	saga.Finished = c.completed
	return s.sagas.UpdateSaga(c, saga, c.State, s.cfg.Options)
}

func (s *Saga[State]) notFound(c *Context[State], r Reaction[State]) error {
	if r.timely {
		return nil
	}
	if s.cfg.NotFound != nil {
		return s.cfg.NotFound(c.Message, c.Correlation)
	}
	s.cfg.Logger.Info("No saga for the message", watermill.LogFields{
		"saga": s.kind, "topic": r.topic, "message_uuid": c.Message.UUID, "correlation": c.Correlation,
	})
	return nil
}

// conflict is the error of the store, and a Snooze without one, so that the router does
// not log as an error what is part of the work.
type conflict struct{ err, snooze error }

func (e *conflict) Error() string        { return e.err.Error() }
func (e *conflict) Is(target error) bool { return errors.Is(e.err, target) }
func (e *conflict) As(target any) bool   { return errors.As(e.snooze, target) }
