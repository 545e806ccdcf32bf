package kafka

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
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

// fly produces all deliveries before the first request goes out, waits for
// their outcome and settles those that arrived. It returns the others. The
// client must not be used for producing by anybody else meanwhile.
func fly(ctx context.Context, client *kgo.Client, deliveries []*delivery) []failure {
	f := &flight{}
	f.placing.Add(len(deliveries))
	f.landing.Add(len(deliveries))
	for _, d := range deliveries {
		d.Context, d.flight, d.placed = ctx, f, false
		d.record.Context = d
		client.Produce(ctx, d.record, landed)
	}
	// Records of a topic that the client does not know yet wait for it outside of
	// the batches.
	f.placing.Wait()
	awaitPartitions(ctx, client, deliveries)
	if err := client.Flush(ctx); err != nil {
		// What is with a broker may still arrive, but not after something that this
		// client sends later: the producer's next epoch shuts it out.
		client.UnsafeAbortBufferedRecords()
	}
	f.landing.Wait()
	return f.failed
}

// awaitPartitions waits until the client's view of each topic has partitions.
// It fills the batches of a topic that is new to it a moment before; a flush in
// between would see no partition to flush, and wait for ever.
func awaitPartitions(ctx context.Context, client *kgo.Client, deliveries []*delivery) {
	last := ""
	for _, d := range deliveries {
		if d.topic == last || !d.placed {
			continue
		}
		last = d.topic
		for ctx.Err() == nil && !hasPartitions(client, d.topic) {
			wait(ctx, time.Millisecond)
		}
	}
}

func hasPartitions(client *kgo.Client, topic string) bool {
	leader, _, err := client.PartitionLeader(topic, 0)
	return leader != -1 || err != nil
}

// landed is the client's promise for every record.
func landed(r *kgo.Record, err error) {
	d := r.Context.(*delivery)
	f := d.flight
	if !d.placed {
		f.placing.Done()
	}
	if err == nil {
		d.settle(nil)
	} else {
		f.failed = append(f.failed, failure{d, err})
	}
	f.landing.Done()
}

// placer tells a flight which of its records are in a batch.
type placer struct{}

// OnProduceRecordPartitioned implements kgo.HookProduceRecordPartitioned.
func (placer) OnProduceRecordPartitioned(r *kgo.Record, _ int32) {
	d := r.Context.(*delivery)
	d.placed = true
	d.flight.placing.Done()
}
