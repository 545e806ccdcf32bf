package kafka

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// attempt is one attempt to send deliveries.
type attempt struct {
	// unbatched counts the records that the client has not put into a batch yet; unanswered counts
	// the records that have no outcome yet.
	unbatched, unanswered sync.WaitGroup
	// failed needs no lock: the client calls onOutcome for one record at a time. The records of
	// one partition come in their order.
	failed []failure
}

// inFlight is one delivery in one attempt. It is the record's context, so onOutcome finds
// it in the record that the client returns. The client may read both for a moment longer,
// so the next attempt uses new values of this type and copies of the records.
type inFlight struct {
	context.Context

	delivery *delivery
	attempt  *attempt
	// batched says that the record was put into a partition's batch.
	batched bool
}

// produce passes all deliveries to the client before the client reads the first failure, waits
// for the outcomes, settles the delivered ones and returns the others. Until it returns, no
// other code may produce with the client.
func produce(ctx context.Context, client *client, deliveries []*delivery) []failure {
	a := load(ctx, client, deliveries)
	if err := client.Flush(ctx); err != nil {
		// A broker may still write a record of an aborted request, but not after records that
		// this client sends later, because the producer's next epoch fences it.
		client.UnsafeAbortBufferedRecords()
	}
	a.unanswered.Wait()
	return a.failed
}

// load returns when every record is in a batch or has failed. The client sends only on a
// flush, so that batches are full; but if the previous flush has not ended yet, it may send
// some of the records at once.
func load(ctx context.Context, client *client, deliveries []*delivery) *attempt {
	client.loading.Lock()
	defer client.loading.Unlock()
	a := &attempt{}
	a.unbatched.Add(len(deliveries))
	a.unanswered.Add(len(deliveries))
	sending := make([]inFlight, len(deliveries))
	now := time.Now()
	for i, d := range deliveries {
		p := &sending[i]
		p.Context, p.delivery, p.attempt = ctx, d, a
		record := &d.record
		if d.sent {
			record = &kgo.Record{Topic: record.Topic, Key: record.Key, Value: record.Value, Headers: record.Headers, Timestamp: record.Timestamp}
		}
		if d.sent, record.Context = true, p; record.Timestamp.IsZero() {
			record.Timestamp = now
		}
		client.Produce(ctx, record, onOutcome)
	}
	// Records of a topic that the client does not know yet are in no batch until the client
	// knows the topic.
	a.unbatched.Wait()
	awaitPartitions(ctx, client, sending)
	return a
}

// awaitPartitions waits until the client's metadata of each topic has partitions. For a new
// topic the client fills the batches a moment earlier; a flush in this moment would find no
// partition to flush, and never end.
func awaitPartitions(ctx context.Context, client *client, sending []inFlight) {
	last := ""
	for i := range sending {
		p := &sending[i]
		topic := p.delivery.topic
		if topic == last || !p.batched {
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

// onOutcome is the callback that the client calls with the outcome of a record.
func onOutcome(r *kgo.Record, err error) {
	p := r.Context.(*inFlight)
	if !p.batched {
		p.attempt.unbatched.Done()
	}
	if err == nil {
		p.delivery.settle(nil)
	} else {
		p.attempt.failed = append(p.attempt.failed, failure{p.delivery, err, p.batched, r.Partition})
	}
	p.attempt.unanswered.Done()
}

// hooks are the callbacks of the client, which calls them from several goroutines.
type hooks struct{ loading *sync.RWMutex }

// OnProduceRecordPartitioned records that the record is in a batch.
func (hooks) OnProduceRecordPartitioned(r *kgo.Record, _ int32) {
	p := r.Context.(*inFlight)
	p.batched = true
	p.attempt.unbatched.Done()
}

// OnBrokerRead runs before the client processes an answer. It blocks answers to produce
// requests while load runs.
func (h hooks) OnBrokerRead(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if key == kmsg.Produce.Int16() {
		h.loading.RLock()
		defer h.loading.RUnlock()
	}
}
