package subscriber

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
	"github.com/outmill/outmill/janitor"
	"github.com/outmill/outmill/storekit"
)

var (
	_ message.Subscriber           = (*Subscriber)(nil)
	_ message.SubscribeInitializer = (*Subscriber)(nil)
)

const (
	// registerTimeout limits a registration, for which Watermill passes no context.
	registerTimeout = 30 * time.Second
	// storeOutcomes is the time that Close spends on storing acks.
	storeOutcomes = 10 * time.Second
)

// Subscriber delivers the records of a store as Watermill messages. It is safe
// for concurrent use. It does not close the store.
type Subscriber struct {
	queue outmill.Queue
	// turns is nil without MaxInFlightPerTenant.
	turns storekit.TenantTurns
	cfg   Config
	log   watermill.LoggerAdapter
	// worker claims for all subscriptions.
	worker *worker.Worker
	// janitor is nil if UpkeepInterval leaves the maintenance of the store to others.
	janitor *janitor.Janitor

	// quiet says that the logger logs nothing, so that no fields need to be made.
	quiet bool

	// ctx ends when Close begins; ended is closed when the subscriber holds no record any
	// more.
	ctx    context.Context
	cancel context.CancelFunc
	ended  chan struct{}
	// delivering counts the goroutines that deliver and those of the upkeep, finishing those
	// that wait for handlers, and handling the messages with handlers.
	delivering, finishing sync.WaitGroup
	handling              atomic.Int64
	begin                 sync.Once
	close                 func() error

	// delays are those that Watermill's DelayOnError has asked for.
	delays delays

	mu   sync.Mutex
	subs map[*subscription]struct{}
	// since is when the first of the current subscriptions began.
	since time.Time
}

// New makes a subscriber for a store. A nil logger logs nothing. The subscriber reads
// nothing before Subscribe.
func New(queue outmill.Queue, cfg Config, logger watermill.LoggerAdapter) (*Subscriber, error) {
	if outmill.IsNil(queue) {
		return nil, fmt.Errorf("%w: subscriber.New: the store is nil", outmill.ErrInvalidConfig)
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	turns, err := turnsFor(queue, cfg)
	if err != nil {
		return nil, err
	}
	log := storekit.LogWith(logger, watermill.LogFields{"store": queue.Name(), "group": cfg.Group})
	_, quiet := log.(watermill.NopLogger)
	s := &Subscriber{
		queue:  queue,
		turns:  turns,
		cfg:    cfg,
		log:    log,
		worker: worker.New(workerConfig(queue, cfg, log)),
		quiet:  quiet,
		subs:   map[*subscription]struct{}{},
		ended:  make(chan struct{}),
	}
	s.close = sync.OnceValue(s.closeNow)
	if cfg.UpkeepInterval > 0 {
		report := func(err error) { _ = s.told(err) }
		if s.janitor, err = janitor.New(queue, janitor.Config{Interval: cfg.UpkeepInterval, OnError: report}, logger); err != nil {
			return nil, err
		}
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

func workerConfig(queue outmill.Queue, cfg Config, log watermill.LoggerAdapter) worker.Config {
	return worker.Config{
		Queue:           queue,
		Logger:          log,
		Group:           cfg.Group,
		ByTopic:         true,
		Order:           cfg.Order,
		KeyPolicy:       cfg.KeyPolicy,
		Retry:           cfg.Retry,
		BatchSize:       cfg.BatchSize,
		MaxPerTenant:    cfg.MaxInFlightPerTenant,
		MaxBytes:        cfg.MaxInFlightBytes,
		Lease:           cfg.Lease,
		MaxProcessing:   cfg.MaxProcessing,
		PollInterval:    cfg.PollInterval,
		MaxErrorBackoff: cfg.MaxErrorBackoff,
		FlushInterval:   cfg.AckFlushInterval,
		AwaitStart:      true,
		OnDead:          cfg.OnDead,
		OnError:         cfg.OnError,
		Name:            cfg.Worker,
		Running:         worker.NewRegistry(),
	}
}

// SubscribeInitialize registers the group for the topic, so that the group gets every
// message that is appended from now on. Subscribe does this too.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	if err := s.open(topic); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.ctx, registerTimeout)
	defer cancel()
	return s.register(ctx, topic)
}

func (s *Subscriber) register(ctx context.Context, topics ...string) error {
	regs := make([]outmill.Registration, len(topics))
	for i, topic := range topics {
		if err := errors.Join(storekit.CheckTopic(topic), s.checkTurns(topic)); err != nil {
			return err
		}
		regs[i] = outmill.Registration{Group: s.cfg.Group, Topics: topicOnly(topic), Worker: s.cfg.Worker, TTL: s.cfg.RegistrationTTL}
	}
	if err := worker.Register(ctx, s.queue, regs...); err != nil {
		return fmt.Errorf("outmill: register group %q for %s: %w", s.cfg.Group, namesOf(topics), err)
	}
	return nil
}

// namesOf returns the name of a single topic, or the number of topics.
func namesOf(topics []string) string {
	if len(topics) == 1 {
		return fmt.Sprintf("topic %q", topics[0])
	}
	return fmt.Sprintf("%d topics", len(topics))
}

// Subscribe delivers the topic's messages on the returned channel until ctx ends or the
// subscriber is closed; then it closes the channel. Each message must be acked or nacked.
// Its context ends after the ack or nack, when its lease is lost, or Config.CloseTimeout
// after ctx has ended or Close has begun, so that handlers can finish. A nack after ctx has
// ended releases the record, and the attempt does not count, unless the handler's error is
// outmill.Permanent or Snooze.
//
// All subscriptions of a subscriber share one claim loop, and those of one topic share its
// messages: each message reaches one of them. If two handlers must both get a message, give
// each a subscriber with its own Group.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if err := s.open(topic); err != nil {
		return nil, err
	}
	if err := s.register(ctx, topic); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Close may have begun since the first check.
	if err := s.open(topic); err != nil {
		return nil, err
	}
	sub := newSubscription(ctx, s, topic)
	// From here on, Once waits for the due records of the topic.
	sub.feed = s.worker.Open(topic, s.cfg.MaxInFlight)
	if len(s.subs) == 0 {
		s.since = time.Now()
	}
	s.subs[sub] = struct{}{}
	s.delivering.Go(func() {
		sub.run()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.subs, sub)
	})
	s.begin.Do(s.start)
	return sub.out, nil
}

// start begins to claim and to maintain the store.
func (s *Subscriber) start() {
	s.worker.Start(context.WithoutCancel(s.ctx))
	s.startUpkeep()
}

func (s *Subscriber) open(topic string) error {
	if s.ctx.Err() != nil {
		return fmt.Errorf("outmill: subscribe to %q: %w", topic, outmill.ErrClosed)
	}
	return nil
}

// Once delivers the due messages of the current subscriptions, and returns their number
// when all are settled. The number includes retries that became due during the call. Once
// does not wait for messages that are due later or that other processes have leased.
//
// It returns the error of a claim that failed, and outmill.ErrClosed if the subscriber is
// closed first.
func (s *Subscriber) Once(ctx context.Context) (int, error) {
	if s.ctx.Err() != nil {
		return 0, fmt.Errorf("outmill: subscriber: %w", outmill.ErrClosed)
	}
	if len(s.topics()) == 0 {
		return 0, nil
	}
	before := s.worker.Settled()
	err := s.worker.Drain(ctx)
	return s.worker.Settled() - before, err
}

// ClaimedAt is when the subscriber last claimed from the store without an error, whether or not
// records were due, or when it began to; zero without a subscription and after Close. It claims at
// least once in a few seconds, unless as many handlers run as Config.MaxInFlight allows.
func (s *Subscriber) ClaimedAt() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.subs) == 0 || s.ctx.Err() != nil {
		return time.Time{}
	}
	if at := s.worker.ClaimedAt(); at.After(s.since) {
		return at
	}
	return s.since
}

// Close ends all subscriptions. It releases the records that no handler has started at
// once, waits for the handlers, ends their messages' contexts after Config.CloseTimeout,
// and stores every ack that it got.
//
// If handlers are still running a second later, Close returns an outmill.ErrHandlersRunning
// with their number. It does not release their records, because another process would then
// handle them at the same time. Instead the subscriber extends their leases in the
// background until the handlers return, MaxProcessing ends, the process ends, or the store
// is closed. Close may be called more than once; after the handlers have returned, it
// returns nil.
func (s *Subscriber) Close() error {
	err := s.close()
	if !errors.Is(err, outmill.ErrHandlersRunning) {
		return err
	}
	select {
	case <-s.ended:
		return nil
	default:
		return err
	}
}

func (s *Subscriber) closeNow() error {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	s.worker.Stop()
	s.delivering.Wait()
	s.finishing.Wait()
	running := s.handling.Load()
	if running == 0 {
		return s.end()
	}
	go s.linger()
	return fmt.Errorf("%w: %d did not return within %s (CloseTimeout) of the subscriber's Close; their records stay leased until they do, "+
		"at most for %s (MaxProcessing)",
		outmill.ErrHandlersRunning, running, s.cfg.CloseTimeout, s.cfg.MaxProcessing)
}

// end stores the remaining outcomes and ends the worker.
func (s *Subscriber) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), storeOutcomes)
	defer cancel()
	err := s.worker.Close(ctx)
	close(s.ended)
	return err
}

// linger keeps the worker alive until each handling has ended or has lost its record.
func (s *Subscriber) linger() {
	s.worker.WaitEmpty(context.Background())
	if err := s.end(); err != nil {
		s.log.Error("Could not store the outcomes of handlers that ended after Close", err, nil)
	}
}

// startUpkeep always renews the registrations, even if UpkeepInterval leaves the
// maintenance of the store to other processes.
func (s *Subscriber) startUpkeep() {
	s.delivering.Go(func() { worker.Rounds(s.ctx, s.renewInterval(), s.log, s.round) })
	if s.janitor != nil {
		s.delivering.Go(func() { _ = s.janitor.Run(s.ctx) }) // It returns an error only after its Close.
	}
	if s.cfg.RegistrationTTL > 0 {
		// With a third of the TTL, two renewals may fail before a registration ends.
		s.delivering.Go(func() { worker.Rounds(s.ctx, max(s.cfg.RegistrationTTL/3, time.Millisecond), s.log, s.renew) })
	}
}

// renew registers the group again for all its topics, so that the store knows that the
// group still reads them.
func (s *Subscriber) renew(ctx context.Context) error {
	topics := s.topics()
	if len(topics) == 0 {
		return nil
	}
	return s.told(s.register(ctx, topics...))
}

// round renews the registrations, and warns of topics with records that no group reads.
func (s *Subscriber) round(ctx context.Context) error {
	read := map[string]bool{}
	for _, topic := range s.topics() {
		read[topic] = true
	}
	reads := func(topic string) bool { return read[topic] }
	return errors.Join(s.renew(ctx), s.told(worker.WarnUnread(ctx, s.queue, s.log, s.cfg.Group, reads, s.renewInterval())))
}

// renewInterval is the time between two rounds.
func (s *Subscriber) renewInterval() time.Duration {
	if s.cfg.UpkeepInterval < 0 {
		return defaultUpkeepInterval
	}
	return s.cfg.UpkeepInterval
}

// told reports an error of the upkeep to OnError, and returns it.
func (s *Subscriber) told(err error) error {
	if s.ctx.Err() == nil {
		worker.Faults{Log: s.log, Of: fmt.Sprintf("subscriber of group %q", s.cfg.Group), OnError: s.cfg.OnError}.Tell(err)
	}
	return err
}

// topics returns the subscribed topics, each once.
func (s *Subscriber) topics() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	topics := map[string]struct{}{}
	for sub := range s.subs {
		topics[sub.topic] = struct{}{}
	}
	return slices.Sorted(maps.Keys(topics))
}

func topicOnly(topic string) outmill.Topics {
	return outmill.Topics{Include: []string{outmill.Exact(topic)}}
}
