package forwarder

import (
	"context"
	"time"

	"github.com/outmill/outmill/internal/worker"
	"github.com/outmill/outmill/roles"
)

// forwardBatches publishes batches as they are, and acks them if every record was delivered. Otherwise it returns the parcels of their
// records, which are still to be settled: with their fates, or unsent if nothing was published.
func (p *pass) forwardBatches(batches []*worker.Batch) (parcels []*parcel, published bool) {
	if !p.flow.takesAll() || !startedAll(batches) {
		return parcelsOf(batches), false
	}
	records := recordsOf(batches)
	sent, begun, err := make(chan struct{}), false, error(nil)
	go func() {
		defer close(sent)
		p.within(func(ctx context.Context) {
			if begun = ctx.Err() == nil; begun {
				err = guard(func() error { return p.forwarder.raw(ctx, records) })
			}
		})
	}()
	end := func(parcels []*parcel) {
		if begun {
			note(parcels, err)
		} else {
			endAll(parcels, unsent, nil)
		}
	}
	late := time.NewTimer(p.forwarder.late())
	defer late.Stop()
	select {
	case <-sent:
		if begun && err == nil {
			p.flow.settleBatches(batches, len(records))
			return nil, true
		}
		parcels = parcelsOf(batches)
		end(parcels)
	case <-p.giveUp.Done():
		parcels = parcelsOf(batches)
		p.abandon(parcels)
	case <-late.C:
		parcels = parcelsOf(batches)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			<-sent
			end(parcels)
		}()
		p.awaitLate(parcels, ended)
	}
	return parcels, true
}

func startedAll(batches []*worker.Batch) bool {
	for _, b := range batches {
		if !b.Started() {
			return false
		}
	}
	return true
}

// recordsOf returns the records of batches, in their order.
func recordsOf(batches []*worker.Batch) []roles.RawRecord {
	if len(batches) == 1 {
		return batches[0].Raw()
	}
	var records []roles.RawRecord
	for _, b := range batches {
		records = append(records, b.Raw()...)
	}
	return records
}

// parcelsOf has batches become items, and returns the parcels of these, in their order.
func parcelsOf(batches []*worker.Batch) []*parcel {
	var items []*worker.Item
	for _, b := range batches {
		items = append(items, b.Items()...)
	}
	return wrap(items)
}

// takesAll reports whether neither the breaker nor a hold keeps a record from being published.
func (fl *flow) takesAll() bool {
	fl.mu.Lock()
	defer fl.mu.Unlock()
	return fl.state == closed && len(fl.held) == 0
}

// settleBatches is settle where all n records were delivered. None of them has failed before.
func (fl *flow) settleBatches(batches []*worker.Batch, n int) {
	fl.published.Add(int64(n))
	fl.failures.someDelivered(time.Now())
	fl.react(report{sent: n, delivered: n}, nil)
	for _, b := range batches {
		b.Ack()
	}
}
