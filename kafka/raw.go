package kafka

import (
	"context"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/outmill/outmill/roles"
	"github.com/outmill/outmill/storekit"
)

var _ storekit.RawPublisher = (*Publisher)(nil)

// PublishesRaw implements storekit.RawPublisher. It returns nil with a marshaler of the user's own, which needs messages.
func (p *Publisher) PublishesRaw(publisher message.Publisher) func(ctx context.Context, batch []roles.RawRecord) error {
	self, is := publisher.(*Publisher)
	if !is || self == nil || self != p || !p.isUsual() {
		return nil
	}
	return func(ctx context.Context, batch []roles.RawRecord) error {
		return p.publish(ctx, len(batch), func(m *marshalling, i int, d *delivery) error {
			d.topic, d.messageID = batch[i].Topic, batch[i].MessageID
			return m.rawRecord(&d.record, batch[i])
		})
	}
}

// rawFields is more than the headers that are no entries of the metadata.
const rawFields = 8

// rawRecord makes the record that DefaultMarshaler makes of the record's message. The headers may have another order.
func (m *marshalling) rawRecord(into *kgo.Record, r roles.RawRecord) error {
	m.reserve(rawFields + len(r.Entries) + len(r.Metadata))
	begin := len(m.headers)
	m.header(UUIDHeaderKey, r.MessageID)
	if !storekit.EachHeader(r, reserved, m.header) {
		m.headers = m.headers[:begin]
		return m.record(into, r.Topic, storekit.ForBroker(storekit.RawMessage(r), reserved))
	}
	m.left--
	into.Topic, into.Value, into.Headers = r.Topic, r.Payload, m.headers[begin:len(m.headers):len(m.headers)]
	if r.Key != "" {
		into.Key = m.bytes(r.Key)
	}
	return m.checkTopic(r.Topic)
}
