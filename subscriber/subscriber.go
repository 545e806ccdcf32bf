package subscriber

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
)

var (
	_ message.Subscriber           = (*Subscriber)(nil)
	_ message.SubscribeInitializer = (*Subscriber)(nil)
)

// registerTimeout bounds a registration that nobody else bounds.
const registerTimeout = 30 * time.Second

// Subscriber delivers the records of a store as Watermill messages. It is safe
// for concurrent use. It does not close the store.
type Subscriber struct {
	queue   outmill.Queue
	cfg     Config
	log     watermill.LoggerAdapter
	running *worker.Registry

	// quiet: the logger logs nothing, so that fields need not be made.
	quiet bool

	// ctx ends when the subscriber is closed.
	ctx     context.Context
	cancel  context.CancelFunc
	closing sync.WaitGroup
	upkeep  sync.Once

	mu   sync.Mutex
	subs map[*subscription]struct{}
}

// New makes a subscriber over a store. A nil logger logs nothing. Nothing is
// read before Subscribe.
func New(queue outmill.Queue, cfg Config, logger watermill.LoggerAdapter) (*Subscriber, error) {
	if outmill.IsNil(queue) {
		return nil, fmt.Errorf("%w: subscriber.New: the store is nil", outmill.ErrInvalidConfig)
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	if outmill.IsNil(logger) {
		logger = watermill.NopLogger{}
	}
	_, quiet := logger.(watermill.NopLogger)
	s := &Subscriber{
		queue:   queue,
		cfg:     cfg,
		log:     logger,
		running: worker.NewRegistry(),
		quiet:   quiet,
		subs:    map[*subscription]struct{}{},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// SubscribeInitialize registers the group for the topic, so that it gets what
// is appended from now on. Subscribe does so by itself.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	if err := s.open(topic); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.ctx, registerTimeout)
	defer cancel()
	return s.register(ctx, topic)
}

func (s *Subscriber) register(ctx context.Context, topic string) error {
	if err := outmill.CheckTopic(topic); err != nil {
		return err
	}
	reg := outmill.Registration{Group: s.cfg.Group, Topics: topicOnly(topic), Worker: s.cfg.Worker, TTL: s.cfg.RegistrationTTL}
	if err := s.queue.RegisterGroup(ctx, reg); err != nil {
		return fmt.Errorf("outmill: subscribe to %q in group %q: %w", topic, s.cfg.Group, err)
	}
	return nil
}

// Subscribe delivers the topic's messages on the returned channel until ctx
// ends or the subscriber is closed; then the channel is closed. Each message
// must be acked or nacked; its context is canceled afterwards, or when its
// lease is lost. A nack after ctx has ended gives the record back without
// counting an attempt.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if err := s.open(topic); err != nil {
		return nil, err
	}
	if err := s.register(ctx, topic); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Close may have come in between.
	if err := s.open(topic); err != nil {
		return nil, err
	}
	sub := newSubscription(ctx, s, topic)
	s.subs[sub] = struct{}{}
	s.closing.Go(func() {
		sub.run()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.subs, sub)
	})
	s.startUpkeep()
	return sub.out, nil
}

func (s *Subscriber) open(topic string) error {
	if s.ctx.Err() != nil {
		return fmt.Errorf("outmill: subscribe to %q: %w", topic, outmill.ErrClosed)
	}
	return nil
}

// Once delivers what is due for the current subscriptions and returns when all
// of it is settled: how many messages that were, retries that became due in
// the meantime included. Messages that are due later, or that other processes
// hold, are not waited for.
//
// It returns the error of a claim that failed, and outmill.ErrClosed where the
// subscriber is closed, or is meanwhile.
func (s *Subscriber) Once(ctx context.Context) (int, error) {
	if s.ctx.Err() != nil {
		return 0, fmt.Errorf("outmill: subscriber: %w", outmill.ErrClosed)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	total := 0
	for _, sub := range s.subscriptions() {
		wg.Go(func() {
			before := sub.worker.Settled()
			err := sub.worker.Drain(ctx)
			mu.Lock()
			defer mu.Unlock()
			total += sub.worker.Settled() - before
			errs = append(errs, err)
		})
	}
	wg.Wait()
	return total, errors.Join(errs...)
}

func (s *Subscriber) subscriptions() []*subscription {
	s.mu.Lock()
	defer s.mu.Unlock()
	subs := make([]*subscription, 0, len(s.subs))
	for sub := range s.subs {
		subs = append(subs, sub)
	}
	return subs
}

// Close ends all subscriptions. It lets handlers finish for CloseTimeout, then
// ends their messages' contexts; it stores every ack that it got, and gives
// back what was claimed and not handled. It may be called more than once.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.closing.Wait()
	return nil
}

// startUpkeep: a group must be registered again from time to time even where
// others tidy the store.
func (s *Subscriber) startUpkeep() {
	s.upkeep.Do(func() {
		s.closing.Go(func() {
			if s.cfg.UpkeepInterval < 0 {
				worker.Rounds(s.ctx, s.queue, defaultUpkeepInterval, s.log, s.round)
				return
			}
			worker.Upkeep(s.ctx, s.queue, s.cfg.UpkeepInterval, s.log, s.round)
		})
	})
}

// round registers the group anew, which tells the store that somebody reads
// it, and looks for topics that nobody reads.
func (s *Subscriber) round(ctx context.Context) error {
	read := map[string]bool{}
	var errs []error
	for _, sub := range s.subscriptions() {
		read[sub.topic] = true
		errs = append(errs, s.register(ctx, sub.topic))
	}
	patience := s.cfg.UpkeepInterval
	if patience < 0 {
		patience = defaultUpkeepInterval
	}
	reads := func(topic string) bool { return read[topic] }
	errs = append(errs, worker.WarnUnread(ctx, s.queue, s.log, s.cfg.Group, reads, patience))
	return errors.Join(errs...)
}

func topicOnly(topic string) outmill.Topics {
	return outmill.Topics{Include: []string{outmill.Exact(topic)}}
}
