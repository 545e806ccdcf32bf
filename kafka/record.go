package kafka

import (
	"fmt"

	"github.com/IBM/sarama"
	wkafka "github.com/ThreeDotsLabs/watermill-kafka/v3/pkg/kafka"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outmill/outmill"
)

// recordOf marshals a message for the topic. Its errors are those of the
// message: no retry can mend them.
func recordOf(marshaler wkafka.Marshaler, topic string, msg *message.Message) (*kgo.Record, error) {
	if msg == nil {
		return nil, &outmill.InvalidRecordError{Index: -1, Field: "message", Reason: "is nil"}
	}
	if (marshaler == wkafka.DefaultMarshaler{}) && msg.Metadata.Get(wkafka.UUIDHeaderKey) == "" {
		return usualRecord(topic, msg), checkTopicName(topic)
	}
	produced, err := marshaler.Marshal(topic, msg)
	if err != nil {
		return nil, fmt.Errorf("kafka: marshal message: %w", err)
	}
	if produced == nil {
		return nil, fmt.Errorf("kafka: marshal message: %T returned neither a message nor an error", marshaler)
	}
	rec, err := convert(produced)
	if err != nil {
		return nil, err
	}
	if rec.Topic == "" {
		rec.Topic = topic
	}
	if key := msg.Metadata.Get(outmill.MetadataKey); rec.Key == nil && key != "" {
		rec.Key = []byte(key)
	}
	return rec, checkTopicName(rec.Topic)
}

// usualRecord is what DefaultMarshaler and convert make of a message, in three
// allocations in the place of a dozen: marshalling is most of what the publisher
// does for a message.
func usualRecord(topic string, msg *message.Message) *kgo.Record {
	key := msg.Metadata.Get(outmill.MetadataKey)
	size := len(key) + len(msg.UUID)
	for _, value := range msg.Metadata {
		size += len(value)
	}
	text := make([]byte, 0, size)
	bytesOf := func(s string) []byte {
		begin := len(text)
		text = append(text, s...)
		return text[begin:len(text):len(text)]
	}
	rec := &kgo.Record{Topic: topic, Value: msg.Payload, Headers: make([]kgo.RecordHeader, 1, 1+len(msg.Metadata))}
	if key != "" {
		rec.Key = bytesOf(key)
	}
	rec.Headers[0] = kgo.RecordHeader{Key: wkafka.UUIDHeaderKey, Value: bytesOf(msg.UUID)}
	for name, value := range msg.Metadata {
		rec.Headers = append(rec.Headers, kgo.RecordHeader{Key: name, Value: bytesOf(value)})
	}
	return rec
}

// convert takes from sarama's message what goes over the wire. Partition is
// left out: sarama's default partitioner does not look at it either.
func convert(m *sarama.ProducerMessage) (*kgo.Record, error) {
	rec := &kgo.Record{Topic: m.Topic, Timestamp: m.Timestamp}
	var err error
	if m.Key != nil {
		if rec.Key, err = m.Key.Encode(); err != nil {
			return nil, fmt.Errorf("kafka: encode the message's key: %w", err)
		}
		if rec.Key == nil {
			// sarama hashes such a key; without one, the record would go anywhere.
			rec.Key = []byte{}
		}
	}
	if m.Value != nil {
		if rec.Value, err = m.Value.Encode(); err != nil {
			return nil, fmt.Errorf("kafka: encode the message's value: %w", err)
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

// recordSize is what a record counts against MaxBufferedBytes.
func recordSize(r *kgo.Record) int {
	n := len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}

const maxTopicName = 249

// checkTopicName holds Kafka's own rule, and says what it is: an outbox allows
// more.
func checkTopicName(topic string) error {
	refuse := func(reason string) error {
		return fmt.Errorf("%w: kafka: topic name %q %s: want 1 to %d of the characters a-z, A-Z, 0-9, '.', '_' and '-'",
			outmill.ErrTopicUnavailable, topic, reason, maxTopicName)
	}
	switch {
	case topic == "":
		return refuse("is empty")
	case topic == "." || topic == "..":
		return refuse("is reserved")
	case len(topic) > maxTopicName:
		return refuse(fmt.Sprintf("has %d characters", len(topic)))
	}
	for i := range len(topic) {
		if !topicByte(topic[i]) {
			return refuse("has another character")
		}
	}
	return nil
}

func topicByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
}
