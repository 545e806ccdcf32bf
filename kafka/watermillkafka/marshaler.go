package watermillkafka

import (
	"fmt"

	"github.com/IBM/sarama"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"
)

// marshaler makes franz-go's records with a marshaler of watermill-kafka.
type marshaler struct{ theirs wkafka.Marshaler }

func (m marshaler) Marshal(topic string, msg *message.Message) (*kgo.Record, error) {
	produced, err := m.theirs.Marshal(topic, msg)
	if err != nil {
		return nil, err
	}
	if produced == nil {
		return nil, fmt.Errorf("%T returned neither a message nor an error", m.theirs)
	}
	return convert(produced)
}

// convert copies the fields of sarama's message that are sent. It ignores Partition, as sarama's default partitioner does.
func convert(m *sarama.ProducerMessage) (*kgo.Record, error) {
	rec := &kgo.Record{Topic: m.Topic, Timestamp: m.Timestamp}
	var err error
	if m.Key != nil {
		if rec.Key, err = m.Key.Encode(); err != nil {
			return nil, fmt.Errorf("encode the message's key: %w", err)
		}
		if rec.Key == nil {
			// sarama hashes an empty key to a fixed partition. Without a key, the record would go to any partition.
			rec.Key = []byte{}
		}
	}
	if m.Value != nil {
		if rec.Value, err = m.Value.Encode(); err != nil {
			return nil, fmt.Errorf("encode the message's value: %w", err)
		}
	}
	if len(m.Headers) > 0 {
		rec.Headers = make([]kgo.RecordHeader, len(m.Headers))
	}
	for i, h := range m.Headers {
		rec.Headers[i] = kgo.RecordHeader{Key: string(h.Key), Value: h.Value}
	}
	return rec, nil
}
