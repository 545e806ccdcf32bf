package outmill

import (
	"context"
	"time"
)

// DeliveryInfo describes the record behind a handler's message.
type DeliveryInfo struct {
	// ID is the record's id in the work queue.
	ID WorkItemID
	// Store is the name of the store that the record came from.
	Store string
	Topic string
	Group string
	Key   string
	// Attempt is 1 for the first handling. It counts this handling and those that were
	// abandoned before.
	Attempt int
	// Claims counts leases, this one included.
	Claims int
	// CreatedAt is when the record was appended, DueAt when it was first due and
	// ExpiresAt when it would have expired (zero: never), by the database's
	// clock.
	CreatedAt, DueAt, ExpiresAt time.Time
	// StartedAt is the time, by this process's clock, at which this handling began: when a
	// handler or the forwarder's hooks got the message.
	StartedAt time.Time
	// DedupKey is the dedup key of the publish; "" is none.
	DedupKey string
	// Joins are the joins of which the message is a step, and WaitsFor is the join that makes
	// it due; zero is none. A janitor may have deleted these joins.
	Joins    []JoinID
	WaitsFor JoinID
	// LastError is the error text of the last attempt that failed. It is "" where no attempt
	// failed, or where no middleware kept the error (subscriber.KeepError keeps it).
	LastError string

	lease leaseClock
}

// LeaseUntil is the end of the lease by the database's clock. It moves while
// the lease is extended.
func (d DeliveryInfo) LeaseUntil() time.Time {
	if d.lease == nil {
		return time.Time{}
	}
	return d.lease.LeaseUntil()
}

// Delivery describes the record behind the message of this context. It reports false for a
// message that did not come from an Outmill subscriber or forwarder.
func Delivery(ctx context.Context) (DeliveryInfo, bool) {
	c, ok := ctx.Value(deliveryKey{}).(*deliveryContext)
	if !ok {
		return DeliveryInfo{}, false
	}
	info := c.source.Delivery()
	info.lease = c.source
	return info, true
}

// WithDelivery returns a context from which [Delivery] reads the source. It is for
// subscribers and forwarders; storekit.Handling is such a source. Each call of Delivery
// calls the source, possibly from several goroutines.
func WithDelivery(ctx context.Context, source interface {
	Delivery() DeliveryInfo
	LeaseUntil() time.Time
}) context.Context {
	return &deliveryContext{ctx, source}
}

type leaseClock interface{ LeaseUntil() time.Time }

type deliverySource interface {
	leaseClock
	Delivery() DeliveryInfo
}

// deliveryContext makes no DeliveryInfo before a handler calls Delivery, because most handlers
// do not.
type deliveryContext struct {
	context.Context
	source deliverySource
}

// Value implements context.Context. For the key of Delivery it returns the context itself, and
// not a DeliveryInfo, which would be an allocation for each call of Delivery. The large struct
// would also make each handler's stack grow for the lookup of any key.
func (c *deliveryContext) Value(key any) any {
	if key == (deliveryKey{}) {
		return c
	}
	return c.Context.Value(key)
}

type deliveryKey struct{}
