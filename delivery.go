package outmill

import (
	"context"
	"slices"
	"sync/atomic"
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

	lease *LeaseClock
}

// LeaseUntil is the end of the lease by the database's clock. It moves while
// the lease is extended.
func (d DeliveryInfo) LeaseUntil() time.Time {
	if d.lease == nil {
		return time.Time{}
	}
	return d.lease.Until()
}

// Delivery returns what is known of the record behind the message of this
// context, and whether there is any: messages that did not come from an
// Outmill subscriber or forwarder have none.
func Delivery(ctx context.Context) (DeliveryInfo, bool) {
	info, ok := ctx.Value(deliveryKey{}).(DeliveryInfo)
	return info, ok
}

// WithDelivery returns a context for the handling of a record, which must not change
// from now on. Subscribers and forwarders use it.
//
// The handling begins with StartDelivery. Who hands messages over by a channel
// calls that afterwards, and the handler may be quicker: then the handling begins
// as it asks.
func WithDelivery(ctx context.Context, store string, rec *Record, lease *LeaseClock) context.Context {
	return &deliveryContext{Context: ctx, store: store, record: rec, lease: lease}
}

// StartDelivery says that the handling begins for which ctx was made. Only the
// first call counts, and it must be given what WithDelivery returned.
func StartDelivery(ctx context.Context) {
	if c, ok := ctx.(*deliveryContext); ok {
		c.start()
	}
}

// deliveryContext saves what context.WithValue allocates for a value that hardly
// anybody asks for.
type deliveryContext struct {
	context.Context
	store  string
	record *Record
	lease  *LeaseClock
	// started is in nanoseconds since 1970; 0 is not yet.
	started atomic.Int64
}

func (c *deliveryContext) start() time.Time {
	c.started.CompareAndSwap(0, time.Now().UnixNano())
	return time.Unix(0, c.started.Load()).UTC()
}

// Value implements context.Context.
func (c *deliveryContext) Value(key any) any {
	if key != (deliveryKey{}) {
		return c.Context.Value(key)
	}
	rec := c.record
	return DeliveryInfo{
		ID:        rec.ID,
		Store:     c.store,
		Topic:     rec.Topic,
		Group:     rec.Group,
		Key:       rec.Key,
		Attempt:   rec.Attempts + 1,
		Claims:    rec.Claims,
		CreatedAt: rec.CreatedAt,
		DueAt:     rec.DueAt,
		ExpiresAt: rec.ExpiresAt,
		StartedAt: c.start(),
		DedupKey:  rec.DedupKey,
		Joins:     slices.Clone(rec.Joins),
		WaitsFor:  rec.WaitsFor,
		LastError: rec.LastError,
		lease:     c.lease,
	}
}

type deliveryKey struct{}

// LeaseClock is the end of a lease that may be extended while it is read.
type LeaseClock struct{ until atomic.Pointer[time.Time] }

// Set moves the end of the lease.
func (c *LeaseClock) Set(until time.Time) { c.until.Store(&until) }

// Until is the end of the lease.
func (c *LeaseClock) Until() time.Time {
	if t := c.until.Load(); t != nil {
		return *t
	}
	return time.Time{}
}
