package roles

import (
	"context"

	"github.com/outmill/outmill"
)

// RestersAtOnce is the most stores that a caller passes to one call of [Rester].Resting.
const RestersAtOnce = 64

// Rester is the role of a store that can say whether it is at rest. A reader of many stores
// (package tenants) asks those of one database together, and then leaves the ones at rest alone:
// no claims, and no upkeep.
//
// A store is at rest if no record in it is pending or leased, in a group or in none, and if a
// round of the upkeep would find no work: ReapExpired of [outmill.Queue], all methods of
// [outmill.Janitor] and the methods of [Joins], [Inbox] and [SagaRetention] that delete what is
// past its retention. Dead records do not count, nor does what is kept for a time that has not
// passed yet. A store may answer that it is not at rest although it is.
type Rester interface {
	// RestsWith returns a comparable value, which is equal for stores that one call of Resting can
	// ask together, such as the schemas of one PostgreSQL database that share a pool. self stands
	// for this store in such a call, also if other types wrap the store.
	RestsWith() (with, self any)

	// Resting reports for each of the stores, which are the self of their RestsWith, in their
	// order, whether it is at rest at the time of the call. A value that is no store of this kind
	// is refused with outmill.ErrInvalidConfig. A store that cannot be asked, for example because its schema was
	// dropped, is not at rest, and fails no call for the others. A transaction that is not
	// committed yet is not seen, so ask again and again.
	//
	// A store that has all changes of its database reported to it (a change stream of MongoDB) may
	// answer from what it has heard. So a change of the last moment may be missing in the answer.
	// The functions of [Waker] are then called after the answer, so a caller that keeps answers listens.
	Resting(ctx context.Context, stores []any) ([]bool, error)
}

// BusyStats is the role of a store that is made of others (package tenants): the statistics of
// those that are not known to be at rest. A store at rest has no record that is due.
type BusyStats interface {
	// StatsOfBusy is Stats of [outmill.Inspector] without the stores that are known to be at rest.
	StatsOfBusy(ctx context.Context, limit int) ([]outmill.TopicStats, error)
}
