package forwarder

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
	"github.com/outmill/outmill/storekit"
)

const (
	firstPause = 500 * time.Millisecond
	firstHold  = 2 * time.Second
	// probeChoice is the number of records from which chooseProbe selects.
	probeChoice = 20
)

// flow decides from the fates of the parcels which records to claim next. It is a circuit
// breaker for the broker and a hold for each topic:
//
//	closed ──nothing delivered, broker away──► open ──pause──► probing
//	   ▲                                         ▲                │
//	   └───────────────the probe was taken───────┼────────────────┤
//	                                             └──it was not────┘
//
// The state is only in memory. After a crash the leased records are due again when their
// leases end.
type flow struct {
	cfg    Config
	worker *worker.Worker
	// failing is that of the pass.
	failing  *worker.Failing
	presence *worker.Presence
	log      watermill.LoggerAdapter
	fails    worker.Faults
	wake     chan struct{}
	// changed has a value after a change of the problems. See reportProblems.
	changed  chan struct{}
	failures *failureHistory
	// published counts the messages that the publisher accepted.
	published atomic.Int64

	mu      sync.Mutex
	state   breakerState
	pause   *storekit.Waits
	probeAt time.Time
	away    error
	// awaySince is the time of the first of the failures in a row.
	awaySince time.Time
	// answered is false while the pass waits for the first answer of the destination.
	answered bool
	// stalled says that the publisher does not return.
	stalled bool
	// probed are the records that failed as the only message of a publish since the breaker
	// opened.
	probed    map[outmill.WorkItemID]struct{}
	held      map[string]*hold
	observers map[*observer]struct{}
}

type breakerState int

const (
	closed breakerState = iota
	open
	probing
)

func newFlow(cfg Config, w *worker.Worker, fails worker.Faults) *flow {
	fl := &flow{
		cfg:       cfg,
		worker:    w,
		log:       fails.Log,
		fails:     fails,
		wake:      make(chan struct{}, 1),
		changed:   make(chan struct{}, 1),
		failures:  newFailureHistory(cfg.MaxErrorBackoff),
		probed:    map[outmill.WorkItemID]struct{}{},
		held:      map[string]*hold{},
		observers: map[*observer]struct{}{},
	}
	fl.pause = storekit.NewWaits(firstPause, fl.cfg.MaxErrorBackoff)
	return fl
}

// settle settles each parcel's item and sets the state of the breaker. Only one goroutine
// calls it.
func (fl *flow) settle(parcels []*parcel) {
	r := fl.assess(parcels)
	fl.published.Add(int64(r.delivered))
	fl.react(r, parcels)
	fl.tell(r)
	for _, p := range parcels {
		if p.verdict == trouble && r.delivered > 0 {
			p.item.Snooze(fl.growing(p.item.Record.Claims))
		} else {
			fl.settleOne(p)
		}
	}
}

// settleLast settles the items when the forwarder stops. It leaves the breaker alone,
// because the stop may have caused the failures.
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
		fl.logFailure(p, p.item.Judge(p.err))
	case giveBack, refused, trouble:
		p.item.Release()
	case forget:
	}
}

// growing returns a wait that doubles with each claim.
func (fl *flow) growing(claims int) time.Duration {
	wait := firstPause
	for i := 1; i < claims && wait < fl.cfg.MaxErrorBackoff; i++ {
		wait *= 2
	}
	return min(wait, fl.cfg.MaxErrorBackoff)
}

func (fl *flow) logFailure(p *parcel, outcome storekit.Verdict) {
	if outcome.Snooze {
		return
	}
	rec := p.item.Record
	worker.InStore(fl.log, rec.Store).Error("Message could not be forwarded", p.err, watermill.LogFields{
		"message_uuid":   rec.MessageID,
		"work_item_id":   rec.ID.String(),
		"correlation_id": rec.CorrelationID,
		"topic":          rec.Topic,
		"attempt":        rec.Attempts + 1,
		"dead":           outcome.Dead,
	})
	fl.fails.Tell(fmt.Errorf("message %s of topic %q: %w", rec.MessageID, rec.Topic, p.err))
}

// react updates the breaker and the holds before any item is released, so that no item is
// claimed again at once.
func (fl *flow) react(r report, parcels []*parcel) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	now := time.Now()
	fl.updateHolds(r, now)
	switch {
	case r.away != nil:
		fl.openBreaker(r.away, now)
		fl.noteProbe(r, parcels)
	case fl.state != closed && (r.delivered > 0 || len(r.refused) > 0):
		// The broker answers, even if only to refuse a topic.
		fl.closeBreaker()
	}
	fl.signal()
}

// tell reports to OnError, without the lock, the errors that react has logged.
func (fl *flow) tell(r report) {
	if r.away != nil {
		fl.fails.Tell(fmt.Errorf("the broker accepted no message: %w", r.away))
	}
	for topic, err := range r.refused {
		fl.fails.Tell(fmt.Errorf("topic %q is held: %w", topic, err))
	}
}

func (fl *flow) openBreaker(err error, now time.Time) {
	wait := fl.pause.Next()
	if fl.state == closed {
		fl.awaySince = now
		fl.problemsChanged()
	}
	fl.state, fl.away = open, err
	fl.probeAt = now.Add(wait)
	fl.setLimit()
	fl.log.Error("The broker accepted no message; forwarding pauses, then probes with one record. No attempt is counted. "+
		"Check that the broker is up and its address right", err, watermill.LogFields{"probe_in": wait.String()})
	for w := range fl.observers {
		w.sawAway(err)
	}
}

func (fl *flow) closeBreaker() {
	fl.log.Info("The broker accepts messages again", nil)
	fl.state, fl.away = closed, nil
	fl.problemsChanged()
	fl.pause.Reset()
	clear(fl.probed)
	fl.setLimit()
}

// setLimit sets the number of records that the worker claims.
func (fl *flow) setLimit() {
	limit := fl.cfg.BatchSize
	switch {
	case fl.stalled || fl.state == open:
		limit = 0
	case fl.state == probing:
		limit = min(probeChoice, limit)
	}
	fl.worker.SetLimit(limit)
}

// stall stops the claiming until resume.
func (fl *flow) stall() { fl.setStalled(true) }

func (fl *flow) resume() { fl.setStalled(false) }

func (fl *flow) setStalled(stalled bool) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.stalled = stalled
	fl.setLimit()
}

// noteProbe remembers the record that failed as the only message of a publish.
func (fl *flow) noteProbe(r report, parcels []*parcel) {
	if r.sent > 1 {
		return
	}
	for _, p := range parcels {
		if p.is(failed) {
			fl.probed[p.item.Record.ID] = struct{}{}
		}
	}
}

// admit marks the parcels unsent that must not be published now: those that were claimed
// before the breaker opened or their topic was held, and, during a probe, all but the
// chosen one.
func (fl *flow) admit(parcels []*parcel) {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	for _, p := range parcels {
		if h := fl.held[p.item.Record.Topic]; fl.state == open || h != nil && !h.lifted {
			p.end(unsent, nil)
		}
	}
	if fl.state != probing {
		return
	}
	probe := fl.chooseProbe(stillUnderway(parcels))
	for _, p := range parcels {
		if p != probe {
			p.end(unsent, nil)
		}
	}
}

// chooseProbe prefers a record that was not a probe before, because a bad record whose
// error names no cause would keep the breaker open. It chooses no record behind another one
// of its key.
func (fl *flow) chooseProbe(parcels []*parcel) *parcel {
	var first *parcel
	seen := map[string]bool{}
	for _, p := range parcels {
		if p.key != "" && seen[p.key] {
			continue
		}
		seen[p.key] = true
		if _, before := fl.probed[p.item.Record.ID]; !before {
			return p
		}
		if first == nil {
			first = p
		}
	}
	clear(fl.probed)
	return first
}

// run ends pauses and holds in time.
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
		fl.setLimit()
	}
	fl.liftHolds(now)
}

func (fl *flow) signal() {
	select {
	case fl.wake <- struct{}{}:
	default:
	}
}
