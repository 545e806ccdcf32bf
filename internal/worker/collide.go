package worker

import (
	"errors"
	"fmt"
	"time"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// longestCollision bounds the growing pause of a record that collides too often, and of which no
// attempt counts.
const longestCollision = 10 * time.Second

// Judge settles the item by the policy's verdict on err, and returns the verdict. It logs an error
// that makes the record come again without an attempt for the tenth time in a row, and each one
// after that.
func (it *Item) Judge(err error) storekit.Verdict {
	if verdict, is := it.judgeUndecided(err); is {
		return verdict
	}
	w := it.worker
	verdict, reason := w.judge(it.Record.Attempts, err)
	if verdict.Snooze {
		return it.judgeRepeat(err, verdict, reason)
	}
	w.repeats.ended(it.Record.ID)
	it.obey(verdict, reason)
	return verdict
}

func (it *Item) obey(verdict storekit.Verdict, reason string) {
	switch {
	case verdict.Snooze:
		it.Snooze(verdict.Delay)
	case verdict.Dead:
		it.Fail(reason)
	default:
		it.Abandon(verdict.Delay, reason)
	}
}

// judgeRepeat settles an item whose record comes again without an attempt.
func (it *Item) judgeRepeat(err error, verdict storekit.Verdict, reason string) storekit.Verdict {
	w := it.worker
	if isChoice(err) {
		if it.Record.WaitsFor.IsZero() {
			w.repeats.cameBack(it.Record, false, "", never)
		}
		it.Snooze(verdict.Delay)
		return verdict
	}
	counting := countsOf(err)
	counts := func(times int) bool { return counting && times >= storekit.MostCollisions }
	times := w.repeats.cameBack(it.Record, true, reason, counts)
	if times < storekit.MostCollisions {
		it.Snooze(verdict.Delay)
		return verdict
	}
	reason = fmt.Sprintf("%d times in a row: %s", times, reason)
	if counting {
		verdict, _ = w.judge(it.Record.Attempts, errors.New(reason))
		it.obey(verdict, reason)
		return verdict
	}
	for range min(times-storekit.MostCollisions, 10) {
		verdict.Delay = min(2*max(verdict.Delay, time.Millisecond), max(verdict.Delay, longestCollision))
	}
	fields := fieldsOf(it)
	fields["again_in"], fields["times"] = verdict.Delay.String(), times
	w.faults.InStore(it.Record.Store).Fault("A message comes again and again, because something is in its handler's way; no attempt counts",
		errors.New(reason), fields)
	it.Snooze(verdict.Delay)
	return verdict
}

// isChoice reports whether err is a Snooze that the handler has chosen, and nothing else. It
// returns false for an error whose methods panic, such as a typed nil.
func isChoice(err error) (is bool) {
	defer func() {
		if recover() != nil {
			is = false
		}
	}()
	var collision *storekit.Collision
	_, snoozed := outmill.SnoozeDelay(err)
	_, several := err.(interface{ Unwrap() []error })
	return snoozed && !several && errors.Unwrap(err) == nil && !errors.As(err, &collision)
}

// countsOf reports whether err is a Collision of which too many in a row count.
func countsOf(err error) (counts bool) {
	defer func() {
		if recover() != nil {
			counts = false
		}
	}()
	var collision *storekit.Collision
	return errors.As(err, &collision) && collision.Counts
}
