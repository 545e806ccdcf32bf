package kafka

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outmill/outmill"
)

// UUIDHeaderKey is the header that carries a message's UUID, the same as watermill-kafka's.
const UUIDHeaderKey = "_watermill_message_uuid"

// Marshaler makes the record of a message. The publisher uses the record's Topic, Key, Value, Headers and Timestamp, and ignores
// its other fields: the key decides the partition. An empty Topic is the topic of the call. A nil Key is the message's outbox key
// ([outmill.SetKey]); an empty key that is not nil stays an empty key. A zero Timestamp is the time at which the record is sent.
//
// An error is permanent: it fails the message, and no other. The publisher calls Marshal from several goroutines at a time, and keeps
// the record until the message is delivered.
type Marshaler interface {
	Marshal(topic string, msg *message.Message) (*kgo.Record, error)
}

// DefaultMarshaler makes the same records as the DefaultMarshaler of watermill-kafka, whose subscriber can read them: the UUID in the
// header UUIDHeaderKey, each entry of the metadata as a header, the payload as the value. The key is the outbox key, if the message
// has one. Marshal refuses a message whose metadata has an entry UUIDHeaderKey. A [Publisher] gives no such message to a marshaler: it
// puts the prefix outmill-escaped- before that name.
type DefaultMarshaler struct{}

// Marshal implements Marshaler.
func (DefaultMarshaler) Marshal(topic string, msg *message.Message) (*kgo.Record, error) {
	var record kgo.Record
	// The caller may change the record.
	if err := (&marshalling{}).usualRecord(&record, topic, msg); err != nil {
		return nil, err
	}
	return &record, nil
}

// usualRecord makes the record of DefaultMarshaler.
func (m *marshalling) usualRecord(into *kgo.Record, topic string, msg *message.Message) error {
	if msg.Metadata.Get(UUIDHeaderKey) != "" {
		return fmt.Errorf("kafka: marshal message: metadata %s is reserved for the message's UUID: use another name", UUIDHeaderKey)
	}
	key := msg.Metadata.Get(outmill.MetadataKey)
	into.Topic, into.Value = topic, msg.Payload
	m.reserve(1 + len(msg.Metadata))
	begin := len(m.headers)
	if key != "" {
		into.Key = m.bytes(key)
	}
	m.header(UUIDHeaderKey, msg.UUID)
	for name, value := range msg.Metadata {
		m.header(name, value)
	}
	into.Headers = m.headers[begin:len(m.headers):len(m.headers)]
	return nil
}

func (m *marshalling) header(name, value string) {
	m.headers = append(m.headers, kgo.RecordHeader{Key: name, Value: m.bytes(value)})
}
