package roles

import (
	"context"
)

// IdleAtOnce is the most stores that a caller passes to one call of [Idle].AreIdle.
const IdleAtOnce = 64

// Idle is the role of a store that can say whether it is idle. A reader of many stores
// (package tenants) asks those of one database together, and then leaves the idle ones alone:
// no claims, and no upkeep.
//
// A store is idle if no record in it is pending or leased, in a group or in none, and if a
// round of the upkeep would find no work: ReapExpired of [outmill.Queue], all methods of
// [outmill.Janitor] and the methods of [Joins], [Inbox], [Sagas] and [Repairs] that delete joins,
// notes, sagas and entries of the audit after their retention. Dead records do not count, and
// what has a retention counts only after it. A store may answer that it is not idle although it is.
type Idle interface {
	// IdleWith returns a comparable value, which is equal for stores that one call of AreIdle can
	// ask together, such as the schemas of one PostgreSQL database that share a pool. self stands
	// for this store in such a call, also if other types wrap the store.
	IdleWith() (with, self any)

	// AreIdle reports for each of the stores, which are the self of their IdleWith, in their
	// order, whether it is idle at the time of the call. A value that is no store of this kind
	// is refused with outmill.ErrInvalidConfig. A store that cannot be asked, for example because its schema was
	// dropped, is not idle, and fails no call for the others. A transaction that is not
	// committed yet is not seen, so ask again and again.
	//
	// A store that has all changes of its database reported to it (a change stream of MongoDB) may
	// answer from what it has heard. So a change of the last moment may be missing in the answer.
	// The functions of [Waker] are then called after the answer, so a caller that keeps answers listens.
	AreIdle(ctx context.Context, stores []any) ([]bool, error)
}
