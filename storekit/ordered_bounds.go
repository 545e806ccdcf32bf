package storekit

import (
	"cmp"
	"context"
	"time"
)

// What is delayed, waits for a retry, or has a lease that ended comes into line when
// it is due. A million records may be due at once, so a claim puts only some of them
// in line in one transaction, those first that were due first. Until the rest has
// followed, the claim must not hand out what has been due for less long than they
// have: it works as of the moment at which the last record that it put in line was
// due. So the outcome is that of a claim which was made at that moment, and the
// order of each key holds:
//
//   - What became due after that moment, or was appended after it, stays in the line.
//   - What still waits for its retry, or is leased, stands in the way of its key,
//     whether it is due or not.
//   - What is delayed stands in nobody's way before it is due.
//
// Each such transaction leaves the records that it put in line where they are, so a
// crash, or a claim that ends before it hands anything out, loses no work.

// atOnce is how many records one statement moves: enough to be worth its round trip,
// and few enough to take some milliseconds.
const atOnce = 1000

// BatchSize bounds the work that one transaction of a claim or a requeue does; further
// transactions do the rest. The zero value is for every use but tests, which make the
// batches as small as they like.
type BatchSize int

// Admit is how many records whose time has come a claim for want records puts in line
// in one transaction. It is more than the claim takes, so that the rest becomes less
// with each claim.
func (b BatchSize) Admit(want int) int {
	if b > 0 {
		return int(b)
	}
	return max(atOnce, 2*want)
}

// Park is how many records of a key one transaction parks. The others follow as claims
// come to them: the key is parked from the first one on, so that a claim which parks
// hands out none of it.
func (b BatchSize) Park() int {
	if b > 0 {
		return int(b)
	}
	return atOnce
}

// mostDoublings bounds how large a batch of a requeue becomes: 64 times the first.
const mostDoublings = 6

// Requeue is how many records of a parked key the nth transaction brings back, from 0
// on. A key stays parked until the last of them is back, and claims that come between
// two transactions park again what they meet of it. The batches grow, so that the
// requeue is faster than these claims are together.
func (b BatchSize) Requeue(nth int) int {
	return b.Park() << min(nth, mostDoublings)
}

// HalfTime is when half of the time is over that ctx leaves a claim. By then it stops
// if it has had work in many transactions and nothing to hand out: what it has done
// stays done, and at the end of ctx its caller would take it for one that failed. It is
// zero where ctx has no end.
func HalfTime(ctx context.Context) time.Time {
	end, bounded := ctx.Deadline()
	if !bounded {
		return time.Time{}
	}
	return time.Now().Add(time.Until(end) / 2)
}

// Moment is a place in the order in which records become due. The zero value is the
// present: everything that is in line has been due before it.
type Moment struct {
	Due time.Time
	Seq int64
}

// Before tells whether the moment is before the one at which a record was due.
func (m Moment) Before(due time.Time, seq int64) bool {
	return !m.Due.IsZero() && cmp.Or(m.Due.Compare(due), cmp.Compare(m.Seq, seq)) < 0
}
