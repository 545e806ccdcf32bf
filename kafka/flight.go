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
	// placing counts the records that the client has not put into a batch yet; landing counts
	// the records that have no outcome yet.
	placing, landing sync.WaitGroup
	// failed needs no lock: the client calls landed for one record at a time. The records of
	// one partition come in their order.
	failed []failure
}

// passenger is one delivery on one flight. It is the record's context, so landed finds it
// in the record that the client returns. The client may read both for a moment longer, so
// the next flight uses new passengers and copies of the records.
type passenger struct {
	context.Context

	delivery *delivery
	flight   *flight
	// placed says that the record was put into a partition's batch.
	placed bool
}

// fly passes all deliveries to the client before the client reads the first failure, waits
// for the outcomes, settles the delivered ones and returns the others. Until it returns, no
// other code may produce with the client.
func fly(ctx context.Context, client *client, deliveries []*delivery) []failure {
	f := load(ctx, client, deliveries)
	if err := client.Flush(ctx); err != nil {
		// A broker may still write a record of an aborted request, but not after records that
		// this client sends later, because the producer's next epoch fences it.
		client.UnsafeAbortBufferedRecords()
	}
	f.landing.Wait()
	return f.failed
}

// load returns when every record is in a batch or has failed. The client sends only on a
// flush, so that batches are full; but if the previous flush has not ended yet, it may send
// some of the records at once.
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
	// Records of a topic that the client does not know yet are in no batch until the client
	// knows the topic.
	f.placing.Wait()
	awaitPartitions(ctx, client, passengers)
	return f
}

// awaitPartitions waits until the client's metadata of each topic has partitions. For a new
// topic the client fills the batches a moment earlier; a flush in this moment would find no
// partition to flush, and never end.
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

// landed is the callback that the client calls with the outcome of a record.
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

// hooks are the callbacks of the client, which calls them from several goroutines.
type hooks struct{ loading *sync.RWMutex }

// OnProduceRecordPartitioned records that the record is in a batch.
func (hooks) OnProduceRecordPartitioned(r *kgo.Record, _ int32) {
	p := r.Context.(*passenger)
	p.placed = true
	p.flight.placing.Done()
}

// OnBrokerRead runs before the client processes an answer. It blocks answers to produce
// requests while a flight is loaded.
func (h hooks) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if key == kmsg.Produce.Int16() {
		h.loading.RLock()
		defer h.loading.RUnlock()
	}
}
