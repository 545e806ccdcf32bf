package storekit

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/outmill/outmill"
)

// Handling is one handling of a record, by a handler or by the hooks of a forwarder.
// It is the source of [outmill.Delivery]. It may be used concurrently.
type Handling struct {
	store  string
	record *outmill.Record
	lease  *LeaseClock
	// started is in nanoseconds since 1970; 0 is not yet.
	started atomic.Int64
}

// NewHandling is the handling of a record of the store, which must not change from now
// on. A record that names its store is of that one. The lease may be nil.
func NewHandling(store string, rec *outmill.Record, lease *LeaseClock) *Handling {
	return &Handling{store: store, record: rec, lease: lease}
}

// Context returns a context that tells of the handling.
func (h *Handling) Context(ctx context.Context) context.Context { return outmill.WithDelivery(ctx, h) }

// Start says that the handling begins. Only the first call counts. A subscriber calls
// it after it has handed the message over, and a handler may be quicker: then the
// handling begins when the handler asks.
func (h *Handling) Start() { h.start() }

func (h *Handling) start() time.Time {
	h.started.CompareAndSwap(0, time.Now().UnixNano())
	return time.Unix(0, h.started.Load()).UTC()
}

// LeaseUntil is the end of the lease; zero where there is none.
func (h *Handling) LeaseUntil() time.Time {
	if h.lease == nil {
		return time.Time{}
	}
	return h.lease.Until()
}

// Delivery is what the handler may know. It starts the handling.
func (h *Handling) Delivery() outmill.DeliveryInfo {
	rec := h.record
	return outmill.DeliveryInfo{
		ID:        rec.ID,
		Store:     cmp.Or(rec.Store, h.store),
		Topic:     rec.Topic,
		Group:     rec.Group,
		Key:       rec.Key,
		Attempt:   rec.Attempts + 1,
		Claims:    rec.Claims,
		CreatedAt: rec.CreatedAt,
		DueAt:     rec.DueAt,
		ExpiresAt: rec.ExpiresAt,
		StartedAt: h.start(),
		DedupKey:  rec.DedupKey,
		Joins:     slices.Clone(rec.Joins),
		WaitsFor:  rec.WaitsFor,
		LastError: rec.LastError,
	}
}

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
