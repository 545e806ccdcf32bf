package subscriber

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
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

// registerTimeout limits a registration, for which Watermill passes no context.
const registerTimeout = 30 * time.Second

// Subscriber delivers the records of a store as Watermill messages. It is safe
// for concurrent use. It does not close the store.
type Subscriber struct {
	queue outmill.Queue
	// turns is nil without MaxInFlightPerTenant.
	turns storekit.TenantTurns
	cfg   Config
	log   watermill.LoggerAdapter
	// running has the handlings of all sessions, and repeats the records that come again and again
	// without an attempt.
	running *worker.Registry
	repeats *worker.Repeats
	// janitor is nil if UpkeepInterval leaves the maintenance of the store to others.
	janitor *janitor.Janitor

	// quiet says that the logger logs nothing, so that no fields need to be made.
	quiet bool

	// ctx ends when Close begins.
	ctx    context.Context
	cancel context.CancelFunc
	// close begins the end, and returns the sessions that there were.
	close func() []*session

	// delays are those that Watermill's DelayOnError has asked for.
	delays delays

	mu sync.Mutex
	// current is the session that a Subscribe joins, or nil; sessions are all that have not ended.
	current  *session
	sessions map[*session]struct{}
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
		queue:    queue,
		turns:    turns,
		cfg:      cfg,
		log:      log,
		running:  worker.NewRegistry(),
		repeats:  worker.NewRepeats(),
		quiet:    quiet,
		sessions: map[*session]struct{}{},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.close = sync.OnceValue(s.stop)
	if cfg.UpkeepInterval > 0 {
		report := func(err error) { _ = s.told(s.ctx, err) }
		if s.janitor, err = janitor.New(queue, janitor.Config{Interval: cfg.UpkeepInterval, OnError: report}, logger); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *Subscriber) workerConfig(failing *worker.Failing) worker.Config {
	cfg := s.cfg
	return worker.Config{
		Queue:           s.queue,
		Logger:          s.log,
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
		Repeats:         s.repeats,
		Failing:         failing,
		Running:         s.running,
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
	return s.register(ctx, s.joined(), topic)
}

// register reports the failing calls and the slow handlers of a session, if there is one.
func (s *Subscriber) register(ctx context.Context, ses *session, topics ...string) error {
	regs := make([]outmill.Registration, len(topics))
	problems := s.repeats.Problems()
	var calls []outmill.FailingCall
	var slow []outmill.Handling
	if ses != nil {
		calls, slow = ses.failing.ToRegister(), ses.presence.Handling()
	}
	reads := worker.Reads(s.queue, s.cfg.Group, s.cfg.Worker, s.readsOf(topics)...)
	for i, topic := range topics {
		if err := errors.Join(storekit.CheckTopic(topic), s.checkTurns(topic)); err != nil {
			return err
		}
		regs[i] = outmill.Registration{
			Group: s.cfg.Group, Topics: topicOnly(topic), Worker: s.cfg.Worker, TTL: s.cfg.RegistrationTTL, Problems: problems, Failing: calls,
			Handling: slow, Reads: reads,
		}
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

// Subscribe delivers the topic's messages on the returned channel until ctx ends, or the
// subscriber or the store is closed. Each message must be acked or nacked. Its context ends
// after the ack or nack, when its lease is lost, or Config.CloseTimeout after ctx has ended or
// Close has begun, so that handlers can finish. A nack after ctx has ended releases the record,
// and the attempt does not count, unless the handler's error is outmill.Permanent or Snooze.
//
// When the delivery ends, the subscriber gives back at once the records that no handler has
// started. It closes the channel when each message that it delivered is acked or nacked and
// the outcomes are stored, at most Config.CloseTimeout and one second after the end. So a
// router that has stopped has lost no ack.
//
// All subscriptions of a subscriber share one claim loop, and those of one topic share its
// messages: each message reaches one of them. If two handlers must both get a message, give
// each a subscriber with its own Group. When the last subscription has ended, the subscriber
// has no goroutine any more; Subscribe may be called again.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	if err := s.open(topic); err != nil {
		return nil, err
	}
	if err := s.register(ctx, s.joined(), topic); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	// Close may have begun since the first check.
	if err := s.open(topic); err != nil {
		return nil, err
	}
	ses, err := s.session()
	if err != nil {
		return nil, fmt.Errorf("outmill: subscribe to %q: %w", topic, err)
	}
	sub := newSubscription(ctx, ses, topic)
	// From here on, Once waits for the due records of the topic.
	sub.feed = ses.worker.Open(topic, s.cfg.MaxInFlight)
	ses.join(sub)
	return sub.out, nil
}

// session returns the session that has not ended, or begins one. The caller has the lock.
func (s *Subscriber) session() (*session, error) {
	if s.current != nil && s.current.working.Err() == nil {
		return s.current, nil
	}
	ses, err := s.newSession()
	if err != nil {
		return nil, err
	}
	s.current = ses
	s.sessions[ses] = struct{}{}
	ses.start()
	return ses, nil
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
	ses, _ := s.reading()
	if ses == nil {
		return 0, nil
	}
	before := ses.worker.Settled()
	err := ses.worker.Drain(ctx)
	return ses.worker.Settled() - before, err
}

// reading returns the session of the current subscriptions, and when the first of them began, or
// nil if there are none.
func (s *Subscriber) reading() (*session, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ses := s.current
	if ses == nil || len(ses.subs) == 0 || ses.working.Err() != nil {
		return nil, time.Time{}
	}
	return ses, ses.since
}

// ClaimedAt is when the subscriber last claimed from the store without an error, whether or not
// records were due, or when it began to; zero without a subscription and after Close. It claims at
// least once in a few seconds, unless as many handlers run as Config.MaxInFlight allows.
func (s *Subscriber) ClaimedAt() time.Time {
	ses, since := s.reading()
	if ses == nil {
		return time.Time{}
	}
	if at := ses.worker.ClaimedAt(); at.After(since) {
		return at
	}
	return since
}

// Close ends all subscriptions, as the end of their contexts does, and waits until their
// channels are closed: see Subscribe. A program that waits for its router's Run need not call
// it.
//
// If handlers are still running a second after Config.CloseTimeout, Close returns an
// outmill.ErrHandlersRunning with their number. It does not release their records, because
// another process would then handle them at the same time. Instead the subscriber extends
// their leases in the background until the handlers return, MaxProcessing ends, the process
// ends, or the store is closed. Close may be called more than once: a further call reports the
// handlers that run then. Once all have returned, it waits for their outcomes and returns nil.
// An outcome that could not be stored is an error too.
func (s *Subscriber) Close() error {
	running := 0
	var errs []error
	for _, ses := range s.close() {
		ses.finishing.Wait()
		if left := ses.stillHandling(); left > 0 {
			running += left
			continue
		}
		<-ses.over
		errs = append(errs, ses.err)
	}
	if running > 0 {
		errs = append(errs, fmt.Errorf("%w: %d did not return within %s (CloseTimeout) of the subscriber's Close; their records stay leased "+
			"until they do, at most for %s (MaxProcessing)", outmill.ErrHandlersRunning, running, s.cfg.CloseTimeout, s.cfg.MaxProcessing))
	}
	return errors.Join(errs...)
}

func (s *Subscriber) stop() []*session {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel()
	return slices.Collect(maps.Keys(s.sessions))
}

// renewInterval is the time between two rounds.
func (s *Subscriber) renewInterval() time.Duration {
	if s.cfg.UpkeepInterval < 0 {
		return defaultUpkeepInterval
	}
	return s.cfg.UpkeepInterval
}

// told reports an error of the upkeep to OnError, unless ctx has ended, and returns it.
func (s *Subscriber) told(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		worker.Faults{Log: s.log, Of: fmt.Sprintf("subscriber of group %q", s.cfg.Group), OnError: s.cfg.OnError}.Tell(err)
	}
	return err
}

func topicOnly(topic string) outmill.Topics {
	return outmill.Topics{Include: []string{outmill.Exact(topic)}}
}
