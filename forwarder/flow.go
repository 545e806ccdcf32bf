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
	// probeChoice is how many records a probe is chosen from.
	probeChoice = 20
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
	fails  worker.Faults
	wake   chan struct{}
	doubts *doubts
	// published counts the messages that the publisher took.
	published atomic.Int64

	mu      sync.Mutex
	state   breakerState
	pause   *storekit.Waits
	probeAt time.Time
	away    error
	// stalled: the publisher does not return.
	stalled bool
	// probed are the records that failed alone since the breaker opened.
	probed    map[outmill.WorkItemID]struct{}
	held      map[string]*hold
	witnesses map[*witness]struct{}
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
		doubts:    newDoubts(cfg.MaxErrorBackoff),
		probed:    map[outmill.WorkItemID]struct{}{},
		held:      map[string]*hold{},
		witnesses: map[*witness]struct{}{},
	}
	fl.pause = storekit.NewWaits(firstPause, fl.cfg.MaxErrorBackoff)
	return fl
}

// settle settles each parcel's item and moves the breaker. One goroutine
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
		fl.logFailure(p, p.item.Judge(p.err))
	case giveBack, refused, trouble:
		p.item.Release()
	case forget:
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

func (fl *flow) logFailure(p *parcel, outcome storekit.Verdict) {
	if outcome.Snooze {
		return
	}
	rec := p.item.Record
	fl.log.Error("Message could not be forwarded", p.err, worker.NameStore(watermill.LogFields{
		"message_uuid":   rec.MessageID,
		"work_item_id":   rec.ID.String(),
		"correlation_id": rec.CorrelationID,
		"topic":          rec.Topic,
		"attempt":        rec.Attempts + 1,
		"dead":           outcome.Dead,
	}, rec))
	fl.fails.Tell(fmt.Errorf("message %s of topic %q: %w", rec.MessageID, rec.Topic, p.err))
}

// react moves the breaker and the holds before any item is given back, so that
// none of them is claimed again at once.
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
		// If only to refuse a topic: the broker answers.
		fl.closeBreaker()
	}
	fl.signal()
}

// tell passes on what react has logged under the lock.
func (fl *flow) tell(r report) {
	if r.away != nil {
		fl.fails.Tell(fmt.Errorf("the broker took nothing: %w", r.away))
	}
	for topic, err := range r.refused {
		fl.fails.Tell(fmt.Errorf("topic %q is held: %w", topic, err))
	}
}

func (fl *flow) openBreaker(err error, now time.Time) {
	wait := fl.pause.Next()
	fl.state, fl.away = open, err
	fl.probeAt = now.Add(wait)
	fl.setLimit()
	fl.log.Error("The broker took nothing; forwarding pauses, then probes with one record. No attempt is counted. Check that the broker is "+
		"up and its address right", err, watermill.LogFields{"probe_in": wait.String()})
	for w := range fl.witnesses {
		w.sawAway(err)
	}
}

func (fl *flow) closeBreaker() {
	fl.log.Info("The broker takes messages again", nil)
	fl.state, fl.away = closed, nil
	fl.pause.Reset()
	clear(fl.probed)
	fl.setLimit()
}

// setLimit says how many records are to be claimed.
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

// noteProbe remembers the record that failed alone.
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

// admit ends the parcels that are not to be published now: what was claimed
// before the breaker opened or the topic was held, and, of the choice for a
// probe, all but one.
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

// chooseProbe prefers a record that was no probe before, because bad records whose error
// has no explanation would keep the breaker open. It takes no record that is behind
// another one of its key.
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
