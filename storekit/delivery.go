package storekit

import (
	"cmp"
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/outmill/outmill"
)

// Handling is one handling of a record, by a handler or by the hooks of a forwarder. It is
// the source of [outmill.Delivery]. It is safe for concurrent use.
type Handling struct {
	store  string
	record *outmill.Record
	lease  *LeaseClock
	// started is in nanoseconds since 1970; 0 means not started.
	started atomic.Int64
}

// NewHandling returns the handling of a record. Its store is the one that the record names, or
// else the one given here. The record must not change afterwards. The lease may be nil.
func NewHandling(store string, rec *outmill.Record, lease *LeaseClock) *Handling {
	return &Handling{store: store, record: rec, lease: lease}
}

// Context returns a context with which outmill.Delivery describes the handling.
func (h *Handling) Context(ctx context.Context) context.Context { return outmill.WithDelivery(ctx, h) }

// Start records the start of the handling. Only the first call counts. A subscriber calls
// it after it has passed the message to the handler. If the handler calls outmill.Delivery
// earlier, the handling starts then.
func (h *Handling) Start() { h.start() }

func (h *Handling) start() time.Time {
	if h.started.Load() == 0 {
		h.started.CompareAndSwap(0, time.Now().UnixNano())
	}
	return time.Unix(0, h.started.Load()).UTC()
}

// LeaseUntil returns the end of the lease; zero if there is none.
func (h *Handling) LeaseUntil() time.Time {
	if h.lease == nil {
		return time.Time{}
	}
	return h.lease.Until()
}

// Delivery returns the description for the handler. It also starts the handling.
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

// Until returns the end of the lease.
func (c *LeaseClock) Until() time.Time {
	if t := c.until.Load(); t != nil {
		return *t
	}
	return time.Time{}
}
