package monitor

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

type storing struct {
	duration metric.Float64Histogram
	labels   *labels[call]
}

// call are the labels of a call of a store. They need no bound: the program names its stores.
type call struct{ store, operation string }

func newStoring(meter metric.Meter) (s storing, err error) {
	s.labels = newLabels(1_000, call.rest, func(key call) []attribute.KeyValue {
		return []attribute.KeyValue{attribute.String("store", key.store), attribute.String("operation", key.operation)}
	})
	s.duration, err = meter.Float64Histogram("outmill.store.operation.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of one call of a store."), seconds())
	return s, err
}

func (c call) rest() call { return call{other, c.operation} }

// record leaves out calls that the program itself ended, because each stop would look like a
// failure of the store.
func (s storing) record(ctx context.Context, key call, began time.Time, err error) {
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	s.duration.Record(ctx, time.Since(began).Seconds(), s.labels.of(key).of(err).record...)
}

// Store measures each call of Append, Claim and Ack, for many records as one. Pass the result to
// publishers, subscribers and forwarders. outmill.As finds the other roles of the store behind
// it. Close closes the store. It returns ErrInvalidConfig for no store.
func (m *Metrics) Store(store outmill.Store) (outmill.Store, error) {
	if outmill.IsNil(store) {
		return nil, storekit.InvalidConfig("Metrics.Store: the store is nil: pass an open store")
	}
	return meteredStore{store, m.storing}, nil
}

type meteredStore struct {
	outmill.Store
	metrics storing
}

func (s meteredStore) Unwrap() outmill.Store { return s.Store }

func (s meteredStore) Append(ctx context.Context, records ...*outmill.Record) error {
	began := time.Now()
	err := s.Store.Append(ctx, records...)
	s.metrics.record(ctx, call{s.Name(), "append"}, began, err)
	return err
}

// Claim tells claims that found nothing apart, because a worker that waits makes many of them.
func (s meteredStore) Claim(ctx context.Context, req outmill.ClaimRequest) ([]*outmill.Record, error) {
	began := time.Now()
	found, err := s.Store.Claim(ctx, req)
	operation := "claim"
	if len(found) == 0 && err == nil {
		operation = "claim_empty"
	}
	s.metrics.record(ctx, call{s.Name(), operation}, began, err)
	return found, err
}

func (s meteredStore) Ack(ctx context.Context, by string, leases []outmill.Lease) error {
	began := time.Now()
	err := s.Store.Ack(ctx, by, leases)
	s.metrics.record(ctx, call{s.Name(), "ack"}, began, err)
	return err
}
