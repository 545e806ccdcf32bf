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
	info, ok := ctx.Value(deliveryKey{}).(DeliveryInfo)
	return info, ok
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

// deliveryContext makes the DeliveryInfo only when a handler calls Delivery, because most
// handlers do not.
type deliveryContext struct {
	context.Context
	source deliverySource
}

// Value implements context.Context.
func (c *deliveryContext) Value(key any) any {
	if key == (deliveryKey{}) {
		return c.delivery()
	}
	return c.Context.Value(key)
}

// delivery must not be inlined. Inlined, it would add the large struct to the stack frame
// of Value, and each handler's goroutine would have to grow its stack for the lookup of any
// key. That cost a sixth of the processor time of bench burndown.
//
//go:noinline
func (c *deliveryContext) delivery() any {
	info := c.source.Delivery()
	info.lease = c.source
	return info
}

type deliveryKey struct{}
