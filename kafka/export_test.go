package kafka

import (
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"
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
