package monitor

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/outmill/outmill"
)

// gauges are the instruments that show the records of the stores.
type gauges struct {
	pending, delayed, leased, processed, dead, up metric.Int64ObservableGauge
	oldest                                        metric.Float64ObservableGauge
}

func newGauges(meter metric.Meter) (g gauges, err error) {
	for _, def := range []struct {
		gauge             *metric.Int64ObservableGauge
		name, unit, about string
	}{
		{&g.pending, "outmill.records.pending", "{record}", "Records that wait: delayed ones, and those whose lease has ended, too."},
		{&g.delayed, "outmill.records.delayed", "{record}", "Pending records that are not due yet."},
		{&g.leased, "outmill.records.leased", "{record}", "Records that a worker has: their lease has not ended."},
		{&g.processed, "outmill.records.processed", "{record}", "Processed records that the store retains."},
		{&g.dead, "outmill.records.dead", "{record}", "Dead records, which need an operator."},
		{&g.up, "outmill.store.up", "", "1 if the store answered the last count, 0 if not."},
	} {
		if *def.gauge, err = meter.Int64ObservableGauge(def.name, metric.WithUnit(def.unit), metric.WithDescription(def.about)); err != nil {
			return g, err
		}
	}
	g.oldest, err = meter.Float64ObservableGauge("outmill.records.oldest_due.age", metric.WithUnit("s"),
		metric.WithDescription("How long the oldest due record has been due; 0 if no record is due."))
	return g, err
}

func (g gauges) all() []metric.Observable {
	return []metric.Observable{g.pending, g.delayed, g.leased, g.processed, g.dead, g.up, g.oldest}
}

func (g gauges) observe(o metric.Observer, row outmill.TopicStats, at time.Time) {
	labels := metric.WithAttributeSet(attribute.NewSet(
		attribute.String("store", row.Store), attribute.String("group", row.Group), attribute.String("topic", row.Topic),
	))
	o.ObserveInt64(g.pending, int64(row.Pending), labels)
	o.ObserveInt64(g.delayed, int64(row.Delayed), labels)
	o.ObserveInt64(g.leased, int64(row.Leased), labels)
	o.ObserveInt64(g.processed, int64(row.Processed), labels)
	o.ObserveInt64(g.dead, int64(row.Dead), labels)
	age := 0.0
	if !row.OldestDue.IsZero() {
		age = max(0, at.Sub(row.OldestDue).Seconds())
	}
	o.ObserveFloat64(g.oldest, age, labels)
}
