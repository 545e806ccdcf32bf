package forwarder

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/internal/worker"
	"github.com/outmill/outmill/storekit"
)

// A forwarder registers its group at once, so that no message that is published from then on passes it by.
// Where its publisher can ask the destination (storekit.Pinger), it registers with Hold until the destination
// has answered once, and claims nothing until then: a forwarder with a wrong address takes nothing that
// waits for a first group, and what waited goes out first. The database knows which registrations hold, so a group
// that has taken before, or whose other forwarder has, goes on without an answer.

// groupsWithin limits the question which registrations hold.
const groupsWithin = 30 * time.Second

// reach returns nil if the forwarder may claim: what waited for a first group is taken then. Otherwise it
// returns why the destination does not answer, or the error of the store.
func (f *Forwarder) reach(ctx context.Context, fl *flow) error {
	if f.reached.Load() {
		return nil
	}
	if f.holds(ctx) {
		if err := f.ping(ctx); err != nil {
			return fmt.Errorf("the destination has not answered, so the group takes nothing that waits for a first group: %w", err)
		}
	}
	f.reached.Store(true)
	if err := f.register(ctx, fl); err != nil {
		f.reached.Store(false)
		return err
	}
	return nil
}

func (f *Forwarder) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.PublishTimeout)
	defer cancel()
	return f.pinger.Ping(ctx)
}

// holds reports whether the registration holds, also if that cannot be found out.
func (f *Forwarder) holds(ctx context.Context) bool {
	inspector, ok := outmill.As[outmill.Inspector](f.queue)
	if !ok {
		return true
	}
	infos, err := worker.Bounded(ctx, groupsWithin, inspector.Groups)
	if storekit.NoneAnswered(err) {
		return true
	}
	for _, info := range infos {
		for _, reg := range info.Registrations {
			if info.Group == f.cfg.Group && !reg.Holding && slices.Equal(reg.Topics.Include, f.cfg.Topics.Include) &&
				slices.Equal(reg.Topics.Exclude, f.cfg.Topics.Exclude) {
				return false
			}
		}
	}
	return true
}

// awaitDestination returns true once the forwarder may claim, and false if the pass ends first.
func (p *pass) awaitDestination() bool {
	waits := storekit.NewWaits(firstPause, p.forwarder.cfg.MaxErrorBackoff)
	for {
		err := p.forwarder.reach(p.ctx, p.flow)
		if err == nil {
			p.flow.hasAnswered()
			return true
		}
		if p.ctx.Err() != nil {
			return false
		}
		wait := waits.Next()
		p.flow.notAnswered(err, wait)
		if storekit.Pause(p.ctx, wait) != nil {
			return false
		}
	}
}

// notAnswered opens the breaker without a probe.
func (fl *flow) notAnswered(err error, wait time.Duration) {
	fl.mu.Lock()
	if fl.state == closed {
		fl.awaySince = time.Now()
	}
	fl.state, fl.away = open, err
	fl.problemsChanged()
	fl.log.Error("The group gets what is published from now on, but forwards nothing and takes nothing that waits for a first group, until "+
		"its destination answers. Check that the broker is up and its address right", err, watermill.LogFields{"again_in": wait.String()})
	for w := range fl.observers {
		w.sawAway(err)
	}
	fl.mu.Unlock()
	fl.fails.Tell(err)
}

func (fl *flow) hasAnswered() {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	fl.answered = true
	if fl.state != closed {
		fl.closeBreaker()
	}
}
