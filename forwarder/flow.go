package forwarder

import (
	"context"
	"sync"
	"sync/atomic"
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
	doubts *doubts
	// published counts the messages that the publisher took.
	published atomic.Int64

	mu      sync.Mutex
	state   breakerState
	pause   *backoff.ExponentialBackOff
	probeAt time.Time
	away    error
	held    map[string]*hold
	witnesses map[*witness]struct{}
}

type breakerState int

const (
	closed breakerState = iota
	open
	probing
)

func newFlow(cfg Config, w *worker.Worker, log watermill.LoggerAdapter) *flow {
	fl := &flow{
		cfg:       cfg,
		worker:    w,
		log:       log,
		wake:      make(chan struct{}, 1),
		doubts:    newDoubts(),
		held:      map[string]*hold{},
		witnesses: map[*witness]struct{}{},
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

// next is the pause's next wait; the jitter would go beyond the maximum.
func (fl *flow) next(pause *backoff.ExponentialBackOff) time.Duration {
	return min(pause.NextBackOff(), fl.cfg.MaxErrorBackoff)
}

// settle settles each parcel's item and moves the breaker. One goroutine
// calls it.
func (fl *flow) settle(parcels []*parcel) {
	r := fl.assess(parcels)
	fl.published.Add(int64(r.delivered))
	pause := fl.react(r)
	for _, p := range parcels {
		if p.verdict == trouble {
			fl.putOff(p, r, pause)
		} else {
			fl.settleOne(p)
		}
	}
}

// settleLast is settle for a forwarder that stops: what fails now may fail
// because of that.
func (fl *flow) settleLast(parcels []*parcel) {
	for _, p := range parcels {
		if p.verdict = fl.verdict(p); p.is(delivered) {
			fl.published.Add(1)
		}
		fl.settleOne(p)
	}
}

func (fl *flow) settleOne(p *parcel) {
	switch p.verdict {
	case ack:
		p.item.Ack()
	case judge:
		fl.logFailure(p)
		p.item.Judge(p.err)
	case giveBack, refused, trouble:
		p.item.Release()
	case forget:
	}
}

// putOff gives a record back that is not to blame, or not proven to be.
func (fl *flow) putOff(p *parcel, r report, pause time.Duration) {
	switch {
	case r.delivered > 0:
		p.item.Snooze(fl.growing(p.item.Record.Claims))
	case r.sent > 1:
		p.item.Release()
	default:
		// The next probe should be another record, lest a bad one that nobody
		// explains keeps the breaker open.
		p.item.Snooze(pause + fl.growing(1))
	}
}

// growing doubles from claim to claim.
func (fl *flow) growing(claims int) time.Duration {
	wait := firstPause
	for i := 1; i < claims && wait < fl.cfg.MaxErrorBackoff; i++ {
		wait *= 2
	}
	return min(wait, fl.cfg.MaxErrorBackoff)
}

func (fl *flow) logFailure(p *parcel) {
	rec := p.item.Record
	fl.log.Error("Message could not be forwarded", p.err, watermill.LogFields{
		"message_uuid":   rec.MessageID,
		"work_item_id":   rec.ID.String(),
		"correlation_id": rec.CorrelationID,
		"topic":          rec.Topic,
		"attempt":        rec.Attempts + 1,
		"dead":           fl.cfg.Retry.Decide(rec.Attempts, p.err).Dead,
	})
}

// react moves the breaker and the holds before any item is given back, so that
// none of them is claimed again at once. It returns how long the breaker stays
// open.
func (fl *flow) react(r report) (pause time.Duration) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	now := time.Now()
	fl.updateHolds(r, now)
	switch {
	case r.away != nil:
		pause = fl.openBreaker(r.away, now)
	case fl.state != closed && (r.delivered > 0 || len(r.refused) > 0):
		// If only to refuse a topic: the broker answers.
		fl.closeBreaker()
	}
	fl.signal()
	return pause
}

func (fl *flow) openBreaker(err error, now time.Time) time.Duration {
	wait := fl.next(fl.pause)
	fl.state, fl.away = open, err
	fl.probeAt = now.Add(wait)
	fl.worker.SetLimit(0)
	fl.log.Error("The broker took nothing; forwarding pauses, then probes with one record. No attempt is counted. Check that the broker is up and its address right", err, watermill.LogFields{"probe_in": wait.String()})
	for w := range fl.witnesses {
		w.sawAway(err)
	}
	return wait
}

func (fl *flow) closeBreaker() {
	fl.log.Info("The broker takes messages again", nil)
	fl.state, fl.away = closed, nil
	fl.pause.Reset()
	fl.worker.SetLimit(fl.cfg.BatchSize)
}

// run ends pauses and holds when their time has come.
func (fl *flow) run(ctx context.Context) {
	for {
		timer := time.NewTimer(fl.untilNext())
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-fl.wake:
		case <-timer.C:
		}
		timer.Stop()
		fl.goOn(time.Now())
	}
}

func (fl *flow) untilNext() time.Duration {
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

func (fl *flow) goOn(now time.Time) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	if fl.state == open && !now.Before(fl.probeAt) {
		fl.state = probing
		fl.worker.SetLimit(1)
	}
	fl.liftHolds(now)
}

func (fl *flow) signal() {
	select {
	case fl.wake <- struct{}{}:
	default:
	}
}
