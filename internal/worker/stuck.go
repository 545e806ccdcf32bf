package worker

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill/storekit"
)

const (
	// mostMisses is the number of consecutive failed calls after which the next calls wait,
	// because the store is probably unavailable.
	mostMisses = 3
	// mostStrikes is the number of failed calls for one outcome alone, while the store answers
	// other calls, after which the worker drops the outcome.
	mostStrikes = 10
)

// stuck has the outcomes that could not be stored. Usually the store is unavailable, and
// all of them wait for it. But the store may also refuse a single outcome, or be too slow
// for it, and this outcome must not keep others from being stored. So after a failed call
// the next calls are for half as many outcomes, and after a successful call for twice as
// many; the failed outcomes go to the end of the list. An outcome that fails alone
// mostStrikes times, while the store answers other calls, is dropped: its record is due
// again when its lease ends.
//
// Until it is dropped, its lease is extended, so that other workers do not get the later
// records of its key. Each source has its own, which only its settling goroutine uses.
type stuck struct {
	worker *Worker
	source *source
	list   []stuckOutcome
	// atOnce is the number of outcomes for the next call.
	atOnce int
	pauses *storekit.Waits
	timer  *time.Timer
	// at is the time of the next calls.
	at time.Time
	// err is the last error.
	err error
}

type stuckOutcome struct {
	outcome
	// strikes counts the failed calls for this outcome alone with a successful other call
	// since the strike before. answers is the worker's count of successful calls at the last
	// strike.
	strikes int
	answers int64
}

func (w *Worker) newStuck(s *source) *stuck {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	pauses := storekit.NewWaits(20*time.Millisecond, min(5*time.Second, w.cfg.MaxErrorBackoff))
	return &stuck{worker: w, source: s, timer: timer, pauses: pauses}
}

// due returns a channel that receives when it is time to try outcomes again.
func (s *stuck) due() <-chan time.Time { return s.timer.C }

// add adds the outcomes of a failed call.
func (s *stuck) add(batch []outcome, err error) {
	for _, o := range batch {
		s.list = append(s.list, stuckOutcome{outcome: o, answers: s.source.answers.Load()})
	}
	s.worker.noteStuck(s.source, s.list)
	s.atOnce = max(1, len(batch)/2)
	s.err = err
	if s.at.IsZero() {
		s.wait()
		return
	}
	s.tell(time.Until(s.at))
}

// wait schedules the next calls after a pause.
func (s *stuck) wait() {
	pause := s.pauses.Next()
	s.at = time.Now().Add(pause)
	s.timer.Reset(pause)
	s.tell(pause)
}

func (s *stuck) tell(pause time.Duration) {
	s.worker.faults.InStore(s.source.name).Fault("Outcomes could not be stored, will try again", s.err,
		watermill.LogFields{"count": len(s.list), "after": pause.String()})
}

// tryAgain makes the calls if it is time.
func (s *stuck) tryAgain(ctx context.Context) {
	if s.at.IsZero() || time.Now().Before(s.at) {
		return
	}
	s.at = time.Time{}
	for misses := 0; len(s.list) > 0 && misses < mostMisses; {
		n := s.next()
		left, err := s.worker.tryToStore(ctx, s.source, convert(s.list[:n], func(o stuckOutcome) outcome { return o.outcome }))
		if err != nil {
			n = s.keep(n, left)
		}
		if err == nil || n == 0 {
			s.list, s.atOnce = s.list[n:], 2*s.atOnce
			s.pauses.Reset()
			misses = 0
			continue
		}
		if s.err = err; ctx.Err() != nil || isClosed(err) {
			s.leave()
			return
		}
		misses++
		s.failed(n)
		if len(s.list) == 1 {
			break
		}
	}
	s.worker.noteStuck(s.source, s.list)
	if len(s.list) > 0 {
		s.wait()
	}
}

// keep takes those of the first n outcomes from the list that were stored although the
// call failed for others, and returns how many are left of them.
func (s *stuck) keep(n int, left []outcome) int {
	if len(left) == n {
		return n
	}
	items := make(map[*Item]bool, len(left))
	for _, o := range left {
		items[o.item] = true
	}
	list := make([]stuckOutcome, 0, len(s.list))
	for i, o := range s.list {
		if i >= n || items[o.item] {
			list = append(list, o)
		}
	}
	s.list = list
	return len(left)
}

// next returns the number of outcomes for the next call.
func (s *stuck) next() int {
	n := 1
	for n < min(s.atOnce, len(s.list)) && s.list[n].kind == s.list[0].kind {
		n++
	}
	return n
}

// failed moves the first n outcomes of the list to its end. It drops a single outcome after
// mostStrikes strikes.
func (s *stuck) failed(n int) {
	s.atOnce = max(1, n/2)
	if n > 1 {
		s.list = append(s.list[n:], s.list[:n]...)
		return
	}
	o := s.list[0]
	s.list = s.list[1:]
	if answers := s.source.answers.Load(); answers > o.answers {
		o.strikes++
		o.answers = answers
	}
	if o.strikes < mostStrikes {
		s.list = append(s.list, o)
		return
	}
	fields := fieldsOf(o.item)
	fields["tries"] = o.strikes
	s.worker.faults.InStore(o.item.Record.Store).Fault("The store refuses an outcome; its record is due again when its lease ends", s.err,
		fields)
	s.worker.abandonOutcome(o.outcome)
}

// leave drops all outcomes, because the store is closed or the worker ends.
func (s *stuck) leave() {
	s.timer.Stop()
	if len(s.list) == 0 {
		return
	}
	s.worker.faults.InStore(s.source.name).Fault("Outcomes could not be stored; the records are due again when their leases end", s.err,
		watermill.LogFields{"count": len(s.list)})
	s.worker.forget(convert(s.list, func(o stuckOutcome) outcome { return o.outcome }))
	s.list = nil
	s.worker.noteStuck(s.source, nil)
}

// abandonOutcome drops an outcome that cannot be stored. It changes the owner, because the
// lease is still valid for a while, and the store would return the key's later records to
// the same owner.
func (w *Worker) abandonOutcome(o outcome) {
	w.forget([]outcome{o})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changeOwner()
}
