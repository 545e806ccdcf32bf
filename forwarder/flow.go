package forwarder

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/cenkalti/backoff/v4"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
)

const (
	firstPause = 500 * time.Millisecond
	firstHold  = 2 * time.Second
)

// flow decides, from what became of each parcel, what is claimed next. It is a
// circuit breaker for the broker and a hold for each topic:
//
//	closed ──nothing delivered, broker away──► open ──pause──► probing
//	   ▲                                         ▲                │
//	   └───────────────the probe was taken───────┼────────────────┤
//	                                             └──it was not────┘
//
// A crash leaves nothing behind: all of it is in memory, the records are
// leased and come again.
type flow struct {
	cfg    Config
	worker *worker.Worker
	log    watermill.LoggerAdapter
	wake   chan struct{}

	mu      sync.Mutex
	state   breakerState
	pause   *backoff.ExponentialBackOff
	probeAt time.Time
	held    map[string]*hold
	trouble map[*func(error)]struct{}
}

type breakerState int

const (
	closed breakerState = iota
	open
	probing
)

type hold struct {
	until time.Time
	pause *backoff.ExponentialBackOff
	// lifted: the topic is being tried again.
	lifted bool
}

func newFlow(cfg Config, w *worker.Worker, log watermill.LoggerAdapter) *flow {
	fl := &flow{
		cfg:     cfg,
		worker:  w,
		log:     log,
		wake:    make(chan struct{}, 1),
		held:    map[string]*hold{},
		trouble: map[*func(error)]struct{}{},
	}
	fl.pause = fl.newPause(firstPause)
	return fl
}

func (fl *flow) newPause(first time.Duration) *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(min(first, fl.cfg.MaxErrorBackoff)),
		backoff.WithMaxInterval(fl.cfg.MaxErrorBackoff),
		backoff.WithMaxElapsedTime(0),
	)
}

// onTrouble calls f once the broker is away or refuses a topic, until stopped.
func (fl *flow) onTrouble(f func(error)) (stop func()) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.trouble[&f] = struct{}{}
	return func() {
		fl.mu.Lock()
		defer fl.mu.Unlock()
		delete(fl.trouble, &f)
	}
}

// settle settles each parcel's item and moves the breaker.
func (fl *flow) settle(parcels []*parcel) {
	delivered, away, topics := 0, error(nil), map[string]error{}
	for _, p := range parcels {
		if p.err != nil && !p.own && fl.cfg.Classify != nil {
			p.err = fl.cfg.Classify(p.err)
		}
		switch {
		case p.err == nil && !p.filtered:
			delivered++
		case p.err == nil || p.own || outmill.IsPermanent(p.err) || errors.Is(p.err, errBehind):
		case errors.Is(p.err, outmill.ErrTopicUnavailable):
			topics[p.item.Record.Topic] = p.err
		default:
			away = p.err
		}
	}
	fl.react(delivered, away, topics)
	for _, p := range parcels {
		fl.settleOne(p, delivered)
	}
}

func (fl *flow) settleOne(p *parcel, delivered int) {
	it := p.item
	switch {
	case p.err == nil:
		it.Ack()
	case errors.Is(p.err, errBehind), errors.Is(p.err, outmill.ErrTopicUnavailable):
		it.Release()
	case outmill.IsPermanent(p.err), p.own:
		it.Judge(p.err)
	case delivered > 0 && !p.explained && !errors.Is(p.err, outmill.ErrBrokerUnavailable):
		// Others got through and the publisher does not say what is wrong: it may
		// be the message.
		it.Judge(p.err)
	default:
		// The next claim, or probe, should get other records, lest a bad one that
		// nobody explains keeps the breaker open.
		it.Snooze(firstPause)
	}
}

// react moves the breaker and the holds before any item is given back, so that
// none of them is claimed again at once.
func (fl *flow) react(delivered int, away error, topics map[string]error) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	now := time.Now()
	for topic, err := range topics {
		fl.holdTopic(topic, err, now)
	}
	switch {
	case delivered > 0 && fl.state != closed:
		fl.log.Info("The broker takes messages again", nil)
		fl.state = closed
		fl.pause.Reset()
		fl.worker.SetLimit(fl.cfg.BatchSize)
	case delivered == 0 && away != nil:
		fl.openBreaker(away, now)
	case fl.state == probing && len(topics) > 0:
		// The broker answers, if only to refuse a topic.
		fl.state = closed
		fl.pause.Reset()
		fl.worker.SetLimit(fl.cfg.BatchSize)
	}
	if len(topics) > 0 {
		fl.worker.SetTopics(fl.claimable())
	}
	fl.signal()
}

func (fl *flow) openBreaker(err error, now time.Time) {
	wait := fl.pause.NextBackOff()
	fl.state = open
	fl.probeAt = now.Add(wait)
	fl.worker.SetLimit(0)
	fl.log.Error("The broker took nothing; forwarding pauses, then probes with one record. No attempt is counted. Check that the broker is up and its address right", err, watermill.LogFields{"probe_in": wait.String()})
	fl.tell(err)
}

func (fl *flow) holdTopic(topic string, err error, now time.Time) {
	h := fl.held[topic]
	if h == nil {
		h = &hold{pause: fl.newPause(firstHold)}
		fl.held[topic] = h
	} else if !h.lifted {
		return
	}
	wait := h.pause.NextBackOff()
	h.until, h.lifted = now.Add(wait), false
	fl.log.Error("The broker refuses the topic; it is held, the others go on. Create the topic, or grant access to it", err, watermill.LogFields{"topic": topic, "again_in": wait.String()})
	fl.tell(err)
}

func (fl *flow) tell(err error) {
	for f := range fl.trouble {
		(*f)(err)
	}
}

// claimable is the configured selection without the topics that are held.
func (fl *flow) claimable() outmill.Topics {
	topics := outmill.Topics{Include: fl.cfg.Topics.Include}
	topics.Exclude = append(topics.Exclude, fl.cfg.Topics.Exclude...)
	for topic, h := range fl.held {
		if !h.lifted {
			topics.Exclude = append(topics.Exclude, outmill.Exact(topic))
		}
	}
	return topics
}

// run lifts pauses and holds when their time has come.
func (fl *flow) run(ctx context.Context) {
	for {
		timer := time.NewTimer(fl.next())
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-fl.wake:
		case <-timer.C:
		}
		timer.Stop()
		fl.lift(time.Now())
	}
}

func (fl *flow) next() time.Duration {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	next := time.Now().Add(time.Hour)
	if fl.state == open && fl.probeAt.Before(next) {
		next = fl.probeAt
	}
	for _, h := range fl.held {
		if !h.lifted && h.until.Before(next) {
			next = h.until
		}
	}
	return max(time.Until(next), 0)
}

func (fl *flow) lift(now time.Time) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	if fl.state == open && !now.Before(fl.probeAt) {
		fl.state = probing
		fl.worker.SetLimit(1)
	}
	lifted := false
	for _, h := range fl.held {
		if !h.lifted && !now.Before(h.until) {
			h.lifted, lifted = true, true
		}
	}
	if lifted {
		fl.worker.SetTopics(fl.claimable())
	}
}

func (fl *flow) signal() {
	select {
	case fl.wake <- struct{}{}:
	default:
	}
}
