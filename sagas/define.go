package sagas

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/inbox"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
	"github.com/outmill/outmill/subscriber"
)

// Saga is a kind of sagas. It is safe for concurrent use.
type Saga[State any] struct {
	cfg       Config
	kind      string
	routes    routes[State]
	topics    []string
	sagas     roles.Sagas
	transact  roles.Transactor
	publisher message.Publisher
	inbox     *inbox.Inbox
}

// Define makes a kind of sagas with the state State, which is a struct. It returns
// outmill.ErrInvalidConfig for an invalid Config or State, and for reactions that are invalid
// or in conflict.
func Define[State any](cfg Config, reactions ...Reaction[State]) (*Saga[State], error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	s := &Saga[State]{cfg: cfg, kind: cfg.TypeName(nameOf[State]())}
	var keeps, transacts bool
	s.sagas, keeps = outmill.As[roles.Sagas](cfg.Store)
	s.transact, transacts = outmill.As[roles.Transactor](cfg.Store)
	if !keeps || !transacts {
		return nil, fmt.Errorf("%w: sagas.Config.Store is a %T, which cannot keep sagas: want a roles.Sagas and roles.Transactor",
			outmill.ErrInvalidConfig, cfg.Store)
	}
	if err := storekit.CheckSagaType(s.kind); err != nil {
		return nil, fmt.Errorf("%w: sagas.Define: %w: set Config.TypeName", outmill.ErrInvalidConfig, err)
	}
	if err := storekit.CheckSagaState(new(State)); err != nil {
		return nil, fmt.Errorf("%w: sagas.Define: %w", outmill.ErrInvalidConfig, err)
	}
	var err error
	if s.routes, s.topics, err = newRoutes(reactions, cfg.Marshaler); err != nil {
		return nil, err
	}
	if s.inbox, err = cfg.newInbox(s.kind); err != nil {
		return nil, err
	}
	s.publisher, err = publisher.New(cfg.Store, publisher.Config{RequireTx: true}, cfg.Logger)
	return s, err
}

// prepareWithin bounds the preparation of AddHandlers, so that a program starts while its database
// is away.
const prepareWithin = 5 * time.Second

// Prepare makes what the kind needs in its store, as the first message of the kind does: on MongoDB
// the collection and its indexes. It returns ErrUnkeyed if the collection has documents that no
// message can find. It may be called more than once. Call it at the start if you use Handler
// instead of AddHandlers.
func (s *Saga[State]) Prepare(ctx context.Context) error {
	if err := s.sagas.PrepareSagas(ctx, s.kind); err != nil {
		return fmt.Errorf("saga %s: %w", s.kind, err)
	}
	return nil
}

// Topics returns the topics of the reactions.
func (s *Saga[State]) Topics() []string { return append([]string(nil), s.topics...) }

// AddHandlers adds a Handler for each topic to the router, named after the kind and the
// topic, such as "order:payment.received". sub is a subscriber.Subscriber for Config.Store,
// or any other subscriber; see Handler. Two kinds that read one topic need subscribers of two
// groups. AddHandlers returns outmill.ErrInvalidConfig if an argument is nil or the router
// has a handler of one of the names, and ErrUnkeyed as Prepare does; then it has added no handler.
// If the database does not answer within 5 s, it adds them without this check, and the first
// message makes it.
func (s *Saga[State]) AddHandlers(router *message.Router, sub message.Subscriber) error {
	if router == nil || outmill.IsNil(sub) {
		return fmt.Errorf("%w: sagas: the router or the subscriber is nil", outmill.ErrInvalidConfig)
	}
	taken := router.Handlers()
	for _, topic := range s.topics {
		if _, is := taken[s.handlerName(topic)]; is {
			return fmt.Errorf("%w: sagas: the router has a handler %q", outmill.ErrInvalidConfig, s.handlerName(topic))
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), prepareWithin)
	defer cancel()
	if err := s.Prepare(ctx); errors.Is(err, ErrUnkeyed) {
		return err
	}
	for _, topic := range s.topics {
		router.AddConsumerHandler(s.handlerName(topic), topic, sub, s.Handler(topic))
	}
	return nil
}

func (s *Saga[State]) handlerName(topic string) string { return s.kind + ":" + topic }

// Handler returns the handler of a topic for a router's AddConsumerHandler, if you need
// another subscriber or another name than AddHandlers gives. It includes
// subscriber.KeepError and the inbox of Config.Inbox, so do not add these as middleware.
//
// If the message's context carries a transaction of the store, as inside an inbox.Middleware
// or inbox.Within, the handler uses that transaction, and leaves errors to that middleware: add
// subscriber.KeepError before it. Inside an inbox.Middleware of the store the inbox of
// Config.Inbox has no effect.
//
// A message of another subscriber, such as Kafka's, is acked after the commit. After a
// conflict that subscriber gets an error, and redelivers the message by its own rules.
func (s *Saga[State]) Handler(topic string) message.NoPublishHandlerFunc {
	handle := func(msg *message.Message) ([]*message.Message, error) { return nil, s.handle(topic, msg) }
	once := message.HandlerFunc(handle)
	if s.inbox != nil {
		once = s.inbox.Middleware(once)
	}
	whole := subscriber.KeepError(once)
	return func(msg *message.Message) (err error) {
		if joins, joinErr := storekit.InTransaction(msg.Context(), s.cfg.Store); joins && joinErr == nil {
			_, err = once(msg)
			return err
		}
		_, err = whole(msg)
		return err
	}
}

// DeleteFinished deletes up to limit sagas that finished longer ago than retention, and
// returns their number. Use it for sagas that Config.Retention keeps longer or for ever.
func (s *Saga[State]) DeleteFinished(ctx context.Context, retention time.Duration, limit int) (int, error) {
	return s.sagas.DeleteFinishedSagas(ctx, s.kind, retention, limit)
}
