package kafka

import (
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

// PartitionOf lets a test compare the partitions with sarama's.
var PartitionOf = partitionOf

func RecordOf(marshaler Marshaler, topic string, msg *message.Message) (*kgo.Record, error) {
	var rec kgo.Record
	if err := newMarshalling(marshaler, 1).record(&rec, topic, msg); err != nil {
		return nil, err
	}
	return &rec, nil
}

// BothWays returns the records that PublishBatch makes of the messages of records, and PublishesRaw of the records.
func BothWays(list []roles.RawRecord) (batch, raw []*kgo.Record, batchErrs, rawErrs []error) {
	byMessage, byRecord := newMarshalling(DefaultMarshaler{}, len(list)), newMarshalling(DefaultMarshaler{}, len(list))
	for _, r := range list {
		var one, other kgo.Record
		batchErrs = append(batchErrs, byMessage.record(&one, r.Topic, storekit.ForBroker(storekit.RawMessage(r), reserved)))
		rawErrs = append(rawErrs, byRecord.rawRecord(&other, r))
		batch, raw = append(batch, &one), append(raw, &other)
	}
	return batch, raw, batchErrs, rawErrs
}
