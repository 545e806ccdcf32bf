package storekit

import "cmp"

// Records that are delayed, wait for a retry, or have an ended lease become ready
// (StageReady) only when a claim admits them after their due time. A million records may be
// due at once, so a claim admits only some of them in one transaction, in the order of
// their due times. Until it has admitted the rest, the claim must not return records that
// became due later than the rest. So it works as of a moment: the due time of the last
// record that it admitted. Its result is that of a claim at that moment, and the order of
// each key holds:
//
//   - Ready records that became due, or were appended, after the moment are not returned.
//   - A record that still waits for its retry, or is leased, blocks its key, even if it is
//     due.
//   - A delayed record blocks no other record before it is due.
//
// Admitted records stay ready, so a crash, or a claim that ends before it returns a record,
// loses no work.

// atOnce is the number of records that one statement moves: enough to justify its round
// trip, and few enough to take only some milliseconds.
const atOnce = 1000

// minPage is the least number of records that a claim reads at a time.
const minPage = 32

// BatchSize limits the work of one transaction of a claim or a requeue; further
// transactions do the rest. Only tests use another value than zero, to make the batches
// small.
type BatchSize int

// Admit returns the number of due records that a claim for want records makes ready in one
// transaction. It is more than want, so that each claim reduces the rest.
func (b BatchSize) Admit(want int) int {
	if b > 0 {
		return int(b)
	}
	return max(atOnce, 2*want)
}

// atOncePages is how many pages one transaction of a claim reads in small steps.
const atOncePages = 50

// Scan returns the number of records that one transaction of a claim for want records looks at, in several pages.
func (b BatchSize) Scan(want int) int {
	if b > 0 {
		return atOncePages * int(b)
	}
	return max(atOnce, 10*want)
}

// Page returns the number of records that a claim for want records reads at a time.
func (b BatchSize) Page(want int) int {
	if b > 0 {
		return int(b)
	}
	return max(minPage, want)
}

// Park returns the number of records of a key that one transaction parks. The others follow
// when claims meet them. The key counts as parked from the first record on, so a claim that
// parks returns none of its records.
func (b BatchSize) Park() int {
	if b > 0 {
		return int(b)
	}
	return firstBatch
}

// Step returns the number of records that one transaction of other large work changes, such as a drop of a group.
func (b BatchSize) Step() int { return cmp.Or(max(int(b), 0), atOnce) }

// mostDoublings limits the growth of a requeue's batches, to 64 times the first.
const mostDoublings = 6

// Requeue returns the number of records of a parked key that the nth transaction requeues,
// from 0 on. A key stays parked until all its records are requeued, and claims between two
// transactions park the records that they meet again. The batches grow, so that the requeue
// is faster than all these claims together.
func (b BatchSize) Requeue(nth int) int {
	return b.Park() << min(nth, mostDoublings)
}
