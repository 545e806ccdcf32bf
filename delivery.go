package outmill

import (
	"context"
	"time"
)

// DeliveryInfo is what a handler may want to know of the record behind its
// message.
type DeliveryInfo struct {
	// ID is the record's id in the work queue.
	ID WorkItemID
	// Store is the name of the store that the record came from.
	Store string
	Topic string
	Group string
	Key   string
	// Attempt counts from 1: the handlings that were abandoned before, and this
	// one.
	Attempt int
	// Claims counts leases, this one included.
	Claims int
	// CreatedAt is when the record was appended, DueAt when it was first due and
	// ExpiresAt when it would have expired (zero: never), by the database's
	// clock.
	CreatedAt, DueAt, ExpiresAt time.Time
	// StartedAt is when this handling began, by this process's clock: when the
	// message was handed to a handler, or to the forwarder's hooks.
	StartedAt time.Time
	// DedupKey is what the message was published with.
	DedupKey string
	// Joins are the joins of which the message is a step, and WaitsFor is the join
	// that makes it due; zero is none. They may be deleted by now.
	Joins    []JoinID
	WaitsFor JoinID
	// LastError is what the last attempt that failed said; "" where none did, or
	// nobody kept its error (subscriber.KeepError does).
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

// Delivery returns what is known of the record behind the message of this
// context, and whether there is any: messages that did not come from an
// Outmill subscriber or forwarder have none.
func Delivery(ctx context.Context) (DeliveryInfo, bool) {
	info, ok := ctx.Value(deliveryKey{}).(DeliveryInfo)
	return info, ok
}

// WithDelivery returns a context from which [Delivery] returns what the source says.
// It is for subscribers and forwarders: storekit.Handling is such a source. The
// source is asked each time, and may be asked concurrently.
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

// deliveryContext makes the DeliveryInfo when somebody asks for it, because most
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

// delivery is not inlined, because Value would get room for the large struct on the stack,
// and each goroutine of a handler would have to grow its stack for a lookup of any key. It
// cost a sixth of the processor time of bench burndown.
//
//go:noinline
func (c *deliveryContext) delivery() any {
	info := c.source.Delivery()
	info.lease = c.source
	return info
}

type deliveryKey struct{}
