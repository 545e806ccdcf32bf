package worker

import (
	"context"
	"time"

	"github.com/ThreeDotsLabs/watermill"

	"github.com/outmill/outmill/storekit"
)

const (
	// mostMisses is how many calls in a row may fail before the next ones wait: then
	// the store is probably away.
	mostMisses = 3
	// mostStrikes is how often an outcome is tried alone while the store answers
	// other calls.
	mostStrikes = 10
)

// stuck has the outcomes that could not be stored. Mostly the store is away, and all
// of them wait for it. But it may be that the store refuses one, or takes too long
// with it, and this one must not keep others from being stored. So a call that fails
// has the next calls be for half as many, and one that succeeds for twice as many;
// what failed goes to the end of the list. An outcome that fails alone, again and
// again, while the store does answer other calls, is left: its record comes again
// when its lease ends.
//
// Until then its lease is extended, because a record whose outcome is not stored
// keeps the later ones of its key from other workers. Only the settling goroutine
// uses it.
type stuck struct {
	worker *Worker
	list   []stuckOutcome
	// atOnce is how many outcomes the next call is for.
	atOnce int
	pauses *storekit.Waits
	timer  *time.Timer
	// at is when the next calls are due.
	at time.Time
	// err is the last error.
	err error
}

type stuckOutcome struct {
	outcome
	// strikes counts the calls for this outcome alone that failed while others were
	// answered; answers are those that had been when the last one failed.
	strikes int
	answers int64
}

func (w *Worker) newStuck() *stuck {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return &stuck{worker: w, timer: timer, pauses: storekit.NewWaits(20*time.Millisecond, min(5*time.Second, w.cfg.MaxErrorBackoff))}
}

// due sends when outcomes are to be tried again.
func (s *stuck) due() <-chan time.Time { return s.timer.C }

// add takes outcomes of a call that failed.
func (s *stuck) add(batch []outcome, err error) {
	for _, o := range batch {
		s.list = append(s.list, stuckOutcome{outcome: o, answers: s.worker.answers.Load()})
	}
	s.atOnce = max(1, len(batch)/2)
	s.err = err
	if s.at.IsZero() {
		s.wait()
		return
	}
	s.tell(time.Until(s.at))
}

// wait puts off the next calls.
func (s *stuck) wait() {
	pause := s.pauses.Next()
	s.at = time.Now().Add(pause)
	s.timer.Reset(pause)
	s.tell(pause)
}

func (s *stuck) tell(pause time.Duration) {
	s.worker.faults.Fault("Outcomes could not be stored, will try again", s.err,
		watermill.LogFields{"count": len(s.list), "after": pause.String()})
}

// tryAgain makes the calls that are due.
func (s *stuck) tryAgain(ctx context.Context) {
	if s.at.IsZero() || time.Now().Before(s.at) {
		return
	}
	s.at = time.Time{}
	for misses := 0; len(s.list) > 0 && misses < mostMisses; {
		n := s.next()
		left, err := s.worker.tryToStore(ctx, convert(s.list[:n], func(o stuckOutcome) outcome { return o.outcome }))
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

// next is how many of the list the next call is for.
func (s *stuck) next() int {
	n := 1
	for n < min(s.atOnce, len(s.list)) && s.list[n].kind == s.list[0].kind {
		n++
	}
	return n
}

// failed puts the first n outcomes of the list at its end. One that was alone is left
// at last.
func (s *stuck) failed(n int) {
	s.atOnce = max(1, n/2)
	if n > 1 {
		s.list = append(s.list[n:], s.list[:n]...)
		return
	}
	o := s.list[0]
	s.list = s.list[1:]
	if answers := s.worker.answers.Load(); answers > o.answers {
		o.strikes++
		o.answers = answers
	}
	if o.strikes < mostStrikes {
		s.list = append(s.list, o)
		return
	}
	fields := fieldsOf(o.item)
	fields["tries"] = o.strikes
	s.worker.faults.Fault("The store refuses an outcome; its record comes again when its lease ends", s.err, fields)
	s.worker.abandonOutcome(o.outcome)
}

// leave gives up everything: nothing can be stored any more.
func (s *stuck) leave() {
	s.timer.Stop()
	if len(s.list) == 0 {
		return
	}
	s.worker.faults.Fault("Outcomes could not be stored; the records come again when their leases end", s.err,
		watermill.LogFields{"count": len(s.list)})
	s.worker.forget(convert(s.list, func(o stuckOutcome) outcome { return o.outcome }))
	s.list = nil
}

// abandonOutcome is done with an outcome that cannot be stored. The lease still
// stands for a while, and the store would hand out the key's later records to its
// holder.
func (w *Worker) abandonOutcome(o outcome) {
	w.forget([]outcome{o})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.goOnAnew()
}
