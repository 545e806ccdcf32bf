package kafka

import (
	"fmt"
	"unsafe"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/storekit"
)

// marshalling makes the records of a call. Records of the default marshaler share their
// memory, because marshalling is most of the publisher's work for a message, and most of
// that work was allocation.
type marshalling struct {
	marshaler Marshaler
	// usual says that the marshaler is DefaultMarshaler, so that usualRecord can replace it.
	usual bool
	// left is the number of messages that are not marshalled yet.
	left    int
	headers []kgo.RecordHeader
	// lent says that the records go to the client, which only reads them, so that they may be made of the memory of the texts.
	lent bool
	// checked is the last topic whose name is one of Kafka's.
	checked string
}

func newMarshalling(marshaler Marshaler, messages int) *marshalling {
	return &marshalling{marshaler: marshaler, usual: marshaler == DefaultMarshaler{}, left: messages, lent: true}
}

// reserved reports whether a header of this name means something to a reader of Watermill. Brokers of
// Kafka read no headers.
func reserved(name string) bool { return name == storekit.HeaderUUID }

// record marshals a message for the topic. Its errors are permanent, because the message
// causes them.
func (m *marshalling) record(into *kgo.Record, topic string, msg *message.Message) error {
	m.left--
	if msg == nil {
		return &outmill.InvalidRecordError{Index: -1, Field: "message", Reason: "is nil"}
	}
	if m.usual {
		if err := m.usualRecord(into, topic, msg); err != nil {
			return err
		}
		return m.checkTopic(topic)
	}
	made, err := m.marshaler.Marshal(topic, msg)
	if err != nil {
		return fmt.Errorf("kafka: marshal message: %w", err)
	}
	if made == nil {
		return fmt.Errorf("kafka: marshal message: %T returned neither a record nor an error", m.marshaler)
	}
	into.Topic, into.Key, into.Value, into.Headers, into.Timestamp = made.Topic, made.Key, made.Value, made.Headers, made.Timestamp
	if into.Topic == "" {
		into.Topic = topic
	}
	if key := msg.Metadata.Get(outmill.MetadataKey); into.Key == nil && key != "" {
		into.Key = []byte(key)
	}
	return m.checkTopic(into.Topic)
}

// headersAtOnce is the size of one allocation. A record that stays in memory keeps its whole allocation in memory.
const headersAtOnce = 256

// reserve makes room for n headers, so that appending them does not move the slice.
func (m *marshalling) reserve(n int) {
	if cap(m.headers)-len(m.headers) < n {
		m.headers = make([]kgo.RecordHeader, 0, max(n, min(headersAtOnce, n*(m.left+1))))
	}
}

// bytes are those of the text, never nil.
func (m *marshalling) bytes(s string) []byte {
	if !m.lent || s == "" {
		return []byte(s)
	}
	return unsafe.Slice(unsafe.StringData(s), len(s))
}

// recordSize is the number of bytes of a record that count against MaxBufferedBytes.
func recordSize(r *kgo.Record) int {
	n := len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}

const maxTopicName = 249

// checkTopic is checkTopicName. Most records have the topic of the one before.
func (m *marshalling) checkTopic(topic string) error {
	if topic == m.checked && topic != "" {
		return nil
	}
	err := checkTopicName(topic)
	if err == nil {
		m.checked = topic
	}
	return err
}

// checkTopicName checks Kafka's rule for names, because an outbox allows other names too.
// The error states the rule.
func checkTopicName(topic string) error {
	refuse := func(reason string) error {
		return fmt.Errorf("kafka: topic name %q %s: want 1 to %d of the characters a-z, A-Z, 0-9, '.', '_' and '-'; %s",
			topic, reason, maxTopicName, topicNameRemedy)
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
