package subscriber

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
	"github.com/outmill/outmill/storekit"
)

const (
	// storeOutcomes is the time that the end of a session spends on storing outcomes.
	storeOutcomes = 10 * time.Second
	// leaveMargin is the part of the time for leaving a store that is kept for storing outcomes.
	leaveMargin = time.Second
	// slowAfter is the number of leases after which a registration reports a handler.
	slowAfter = 2
)

// session is the time in which a subscriber works: from a Subscribe until all subscriptions have
// ended and their handlers have returned. Its goroutines claim for all subscriptions, and maintain
// the store. A Subscribe while handlers still run goes on with the session, so that these count.
type session struct {
	subscriber *Subscriber
	worker     *worker.Worker
	// failing knows which of the repeated calls fail; unname ends that.
	failing *worker.Failing
	unname  func()
	// presence knows whether the session is the last reader of its name in the process.
	presence *worker.Presence
	// detach removes the session from the store's workers.
	detach func()

	// working ends when Close begins or the store is about to close. Then nothing is read any more.
	working context.Context
	stop    context.CancelFunc
	// upkeep counts the goroutines of the upkeep, finishing the subscriptions whose channel is open.
	upkeep, finishing sync.WaitGroup
	// handling counts the messages that are with handlers. idle has a value when it was 0.
	handling atomic.Int64
	idle     chan struct{}

	// ending is closed when the session holds no record any more: it waits for no handler from then on.
	ending chan struct{}
	// over is closed when the session has ended. err is then the reason why outcomes were not
	// stored.
	over chan struct{}
	err  error

	// The subscriber's mutex guards the fields below. subs are the subscriptions that read, and
	// since is when the first of them began.
	subs  map[*subscription]struct{}
	since time.Time
	// open counts the subscriptions whose channel is open; lingering says that the session ends
	// unless another subscription comes.
	open      int
	lingering bool
}

// newSession makes a session and attaches it to the store. It returns an error if the store is
// closed. The caller has the lock.
func (s *Subscriber) newSession() (*session, error) {
	failing, unname := worker.NewFailing(s.queue, s.cfg.Group, s.cfg.Worker, s.janitor)
	ses := &session{
		subscriber: s,
		worker:     worker.New(s.workerConfig(failing)),
		failing:    failing,
		unname:     unname,
		idle:       make(chan struct{}, 1),
		ending:     make(chan struct{}),
		over:       make(chan struct{}),
		subs:       map[*subscription]struct{}{},
	}
	ses.working, ses.stop = context.WithCancel(s.ctx)
	detach, err := storekit.Attach(s.queue, ses.leave)
	if err != nil {
		ses.stop()
		unname()
		return nil, err
	}
	ses.detach = detach
	ses.presence = worker.Enter(s.queue, s.cfg.Group, s.cfg.Worker, s.running, slowAfter*s.cfg.Lease, ses.reads)
	return ses, nil
}

// start begins to claim and to maintain the store. The upkeep renews the registrations even if
// UpkeepInterval leaves the maintenance of the store to other processes.
func (ses *session) start() {
	s, ctx := ses.subscriber, ses.working
	ses.worker.Start(context.WithoutCancel(ctx))
	ses.upkeep.Go(func() { worker.Rounds(ctx, s.renewInterval(), s.log, ses.round) })
	ses.upkeep.Go(func() { s.repeats.Report(ctx, ses.renew) })
	ses.upkeep.Go(func() { ses.failing.Report(ctx, ses.renew) })
	if s.janitor != nil {
		// Its error says that the store is closed.
		ses.upkeep.Go(func() { _ = s.janitor.Run(ctx) })
	}
	if s.cfg.RegistrationTTL > 0 {
		// With a third of the TTL, two renewals may fail before a registration ends.
		ses.upkeep.Go(func() { worker.Rounds(ctx, max(s.cfg.RegistrationTTL/3, time.Millisecond), s.log, ses.renew) })
	}
}

// leave ends the session because the store is about to close. It waits for the handlers too, but
// not for those that have already had CloseTimeout.
func (ses *session) leave(ctx context.Context) {
	// No Subscribe joins the session after this.
	ses.subscriber.mu.Lock()
	ses.stop()
	ses.subscriber.mu.Unlock()
	deadline, _ := ctx.Deadline()
	before(deadline.Add(-leaveMargin), ended(&ses.finishing))
	if err := ses.worker.Leave(ctx); err != nil {
		ses.subscriber.log.Error("The store closes before the outcomes of all handlers are stored", err, nil)
	}
	before(deadline, ended(&ses.upkeep))
}

// join adds a subscription. The caller has the lock.
func (ses *session) join(sub *subscription) {
	if len(ses.subs) == 0 {
		ses.since = time.Now()
	}
	ses.subs[sub] = struct{}{}
	ses.open++
	ses.finishing.Go(sub.run)
}

// leaves notes that the subscription no longer reads.
func (ses *session) leaves(sub *subscription) {
	ses.subscriber.mu.Lock()
	defer ses.subscriber.mu.Unlock()
	delete(ses.subs, sub)
}

// returned notes that a handler has returned.
func (ses *session) returned() {
	if ses.handling.Add(-1) > 0 {
		return
	}
	select {
	case ses.idle <- struct{}{}:
	default:
	}
}

// stillHandling is how many handlers the session waits for.
func (ses *session) stillHandling() int {
	select {
	case <-ses.ending:
		return 0
	default:
		return int(ses.handling.Load())
	}
}

// finished notes that the subscription has nothing to wait for any more. If it was the last one,
// the session ends, unless another one comes. over is closed when it has ended.
func (ses *session) finished() (over <-chan struct{}) {
	s := ses.subscriber
	s.mu.Lock()
	defer s.mu.Unlock()
	if ses.open--; ses.open > 0 {
		return nil
	}
	if !ses.lingering {
		ses.lingering = true
		go ses.linger()
	}
	return ses.over
}

// linger waits until no handler runs any more, and then ends the session. After Close, and when the
// store closes, it waits only for handlers whose records are still leased.
func (ses *session) linger() {
	for {
		goesOn, ends := ses.mayEnd()
		switch {
		case goesOn:
			return
		case ends:
			ses.end()
			return
		}
		select {
		case <-ses.idle:
		case <-ses.working.Done():
			ses.worker.WaitEmpty(context.Background())
			ses.end()
			return
		}
	}
}

// mayEnd reports whether the session goes on, because a subscription has come, or ends, because no
// handler runs. If it ends, the next Subscribe begins another session.
func (ses *session) mayEnd() (goesOn, ends bool) {
	s := ses.subscriber
	s.mu.Lock()
	defer s.mu.Unlock()
	if ses.open > 0 {
		ses.lingering = false
		return true, false
	}
	if ses.handling.Load() > 0 {
		return false, false
	}
	if s.current == ses {
		s.current = nil
	}
	return false, true
}

// end stores what is left, and ends the goroutines.
func (ses *session) end() {
	s := ses.subscriber
	close(ses.ending)
	ses.stop()
	ctx, cancel := context.WithTimeout(context.Background(), storeOutcomes)
	defer cancel()
	err := ses.worker.Close(ctx)
	ses.upkeep.Wait()
	if stopErr := ses.presence.Leave(ctx); stopErr != nil && !errors.Is(stopErr, outmill.ErrClosed) {
		// Doctor misses the worker some minutes later.
		s.log.Info("Could not tell the store that the worker has stopped", watermill.LogFields{"error": stopErr.Error()})
	}
	ses.detach()
	ses.unname()
	if err != nil {
		s.log.Error("Could not store the outcomes of all handlers", err, nil)
	}
	s.mu.Lock()
	delete(s.sessions, ses)
	s.mu.Unlock()
	ses.err = err
	close(ses.over)
}

// topics returns the subscribed topics, each once.
func (ses *session) topics() []string {
	ses.subscriber.mu.Lock()
	defer ses.subscriber.mu.Unlock()
	topics := map[string]struct{}{}
	for sub := range ses.subs {
		topics[sub.topic] = struct{}{}
	}
	return slices.Sorted(maps.Keys(topics))
}

// reads says how the session reads.
func (ses *session) reads() []outmill.Reading { return ses.subscriber.readsOf(ses.topics()) }

// readsOf says how the subscriber reads the topics.
func (s *Subscriber) readsOf(topics []string) []outmill.Reading {
	if len(topics) == 0 {
		return nil
	}
	reading := outmill.Reading{Order: s.cfg.Order, KeyPolicy: s.cfg.KeyPolicy}
	for _, topic := range topics {
		reading.Topics.Include = append(reading.Topics.Include, outmill.Exact(topic))
	}
	return []outmill.Reading{reading}
}

// renew registers the group again for all its topics, so that the store knows that the
// group still reads them.
func (ses *session) renew(ctx context.Context) error {
	topics := ses.topics()
	if len(topics) == 0 {
		return nil
	}
	began := time.Now()
	err := ses.subscriber.register(ctx, ses, topics...)
	ses.failing.Note(ctx, storekit.CallRegister, "", began, err)
	return ses.subscriber.told(ctx, err)
}

// round renews the registrations, and warns of topics with records that no group reads, and of
// workers that read in another order.
func (ses *session) round(ctx context.Context) error {
	read := map[string]bool{}
	for _, topic := range ses.topics() {
		read[topic] = true
	}
	reads := func(topic string) bool { return read[topic] }
	s := ses.subscriber
	renewed, began := ses.renew(ctx), time.Now()
	err := worker.WarnUnread(ctx, s.queue, s.log, s.cfg.Group, reads, s.renewInterval())
	ses.failing.Note(ctx, storekit.CallUpkeep, worker.UnreadPart, began, err)
	began = time.Now()
	differ := ses.presence.WarnReads(ctx, s.log)
	ses.failing.Note(ctx, storekit.CallUpkeep, worker.ReadsPart, began, differ)
	return errors.Join(renewed, s.told(ctx, err), s.told(ctx, differ))
}
