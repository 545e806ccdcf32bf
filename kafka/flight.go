package kafka

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// flight is one attempt to send deliveries.
type flight struct {
	// placing counts the records that the client has not put into a batch yet,
	// landing those that have no outcome yet.
	placing, landing sync.WaitGroup
	// failed is filled by the client, which calls back for one record at a time,
	// those of one partition in their order.
	failed []failure
}

// passenger is one delivery on one flight. The client hands a record back with
// its context: that is how its passenger is found again. It may look at both a little
// longer, so that the next flight has passengers of its own, and copies of the records.
type passenger struct {
	context.Context

	delivery *delivery
	flight   *flight
	// placed says that the record was put into a partition's batch.
	placed bool
}

// fly hands all deliveries to the client before it hears of the first failure,
// waits for their outcome and settles those that arrived. It returns the
// others. Until it returns, nothing else may produce with the client.
func fly(ctx context.Context, client *client, deliveries []*delivery) []failure {
	f := load(ctx, client, deliveries)
	if err := client.Flush(ctx); err != nil {
		// What is with a broker may still arrive, but not after something that this
		// client sends later: the producer's next epoch shuts it out.
		client.UnsafeAbortBufferedRecords()
	}
	f.landing.Wait()
	return f.failed
}

// load returns when every record is in a batch or has failed. The client sends
// on a flush only, so that batches are full; but it may not be done yet with
// the flush before, and send some of these at once.
func load(ctx context.Context, client *client, deliveries []*delivery) *flight {
	client.loading.Lock()
	defer client.loading.Unlock()
	f := &flight{}
	f.placing.Add(len(deliveries))
	f.landing.Add(len(deliveries))
	passengers := make([]passenger, len(deliveries))
	for i, d := range deliveries {
		p := &passengers[i]
		p.Context, p.delivery, p.flight = ctx, d, f
		record := &d.record
		if d.flown {
			record = &kgo.Record{Topic: record.Topic, Key: record.Key, Value: record.Value, Headers: record.Headers, Timestamp: record.Timestamp}
		}
		d.flown, record.Context = true, p
		client.Produce(ctx, record, landed)
	}
	// Records of a topic that the client does not know yet wait for it outside of
	// the batches.
	f.placing.Wait()
	awaitPartitions(ctx, client, passengers)
	return f
}

// awaitPartitions waits until the client's view of each topic has partitions.
// It fills the batches of a topic that is new to it a moment before; a flush in
// between would see no partition to flush, and wait for ever.
func awaitPartitions(ctx context.Context, client *client, passengers []passenger) {
	last := ""
	for i := range passengers {
		p := &passengers[i]
		topic := p.delivery.topic
		if topic == last || !p.placed {
			continue
		}
		last = topic
		for ctx.Err() == nil && !hasPartitions(client, topic) {
			wait(ctx, time.Millisecond)
		}
	}
}

func hasPartitions(client *client, topic string) bool {
	leader, _, err := client.PartitionLeader(topic, 0)
	return leader != -1 || err != nil
}

// landed is the client's promise for every record.
func landed(r *kgo.Record, err error) {
	p := r.Context.(*passenger)
	if !p.placed {
		p.flight.placing.Done()
	}
	if err == nil {
		p.delivery.settle(nil)
	} else {
		p.flight.failed = append(p.flight.failed, failure{p.delivery, err, p.placed, r.Partition})
	}
	p.flight.landing.Done()
}

// hooks are called by the client, from several goroutines.
type hooks struct{ loading *sync.RWMutex }

// OnProduceRecordPartitioned tells a flight that a record is in a batch.
func (hooks) OnProduceRecordPartitioned(r *kgo.Record, _ int32) {
	p := r.Context.(*passenger)
	p.placed = true
	p.flight.placing.Done()
}

// OnBrokerRead is called before the client looks at an answer. It keeps answers
// about records back while a flight is loaded.
func (h hooks) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if key == kmsg.Produce.Int16() {
		h.loading.RLock()
		defer h.loading.RUnlock()
	}
}
