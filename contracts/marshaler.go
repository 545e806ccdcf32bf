package contracts

import (
	"strconv"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
)

// MetadataName and MetadataVersion name the metadata with the contract of a message.
const (
	MetadataName    = outmill.MetadataContract
	MetadataVersion = outmill.MetadataContractVersion
)

var _ cqrs.CommandEventMarshaler = (*Marshaler)(nil)

// MarshalerConfig has the settings of a [Marshaler]. The zero value is ready to use.
type MarshalerConfig struct {
	// NewUUID makes the UUIDs of messages. Default watermill.NewUUID.
	NewUUID func() string
}

// Marshaler encodes values as messages, and decodes them, for the buses and processors of
// Watermill's package cqrs. [Registry.Marshaler] makes it. It is safe for concurrent use.
type Marshaler struct {
	registry *Registry
	newUUID  func() string
}

// Marshaler returns a marshaler of the registry's contracts.
func (r *Registry) Marshaler(cfg MarshalerConfig) *Marshaler {
	if cfg.NewUUID == nil {
		cfg.NewUUID = watermill.NewUUID
	}
	return &Marshaler{registry: r, newUUID: cfg.NewUUID}
}

// Marshal encodes a value, or the value that a pointer points to, as a message with the name
// and the version of its contract in the metadata. If the value has a method OccurredAt()
// time.Time and its result is not zero, Marshal sets it by outmill.SetOccurredAt.
//
// Marshal returns the errors of [Registry.Encode].
func (m *Marshaler) Marshal(v any) (*message.Message, error) {
	encoded, err := m.registry.Encode(v)
	if err != nil {
		return nil, err
	}
	msg := message.NewMessage(m.newUUID(), encoded.Payload)
	msg.Metadata[MetadataName] = encoded.Contract.name
	msg.Metadata[MetadataVersion] = strconv.Itoa(encoded.Contract.version)
	if !encoded.OccurredAt.IsZero() {
		outmill.SetOccurredAt(msg, encoded.OccurredAt)
	}
	return msg, nil
}

// Unmarshal decodes the message into v, a pointer to a value of the message's contract. The
// upcasters convert a message of an older version.
//
// Unmarshal returns the errors of [Registry.Decode]. v is undefined after an error.
func (m *Marshaler) Unmarshal(msg *message.Message, v any) error {
	name, version, err := m.identify(msg)
	if err != nil {
		return err
	}
	return m.registry.Decode(name, version, msg.Payload, v)
}

// Name returns [Registry.Name].
func (m *Marshaler) Name(v any) string { return m.registry.Name(v) }

// NameFromMessage returns the name of the message's contract, or "" if it has none.
func (m *Marshaler) NameFromMessage(msg *message.Message) string {
	name := msg.Metadata.Get(MetadataName)
	if name == "" {
		if old, ok := m.registry.fromWatermill(msg); ok {
			return old.contract.name
		}
	}
	return name
}

// RefuseUnknown is router middleware that returns a permanent [UnknownContractError] for a
// message if the registry does not have its contract, or not this version of it. Without it,
// the processors of package cqrs check only the name: if they have no handler for it, they
// either return an error of their own, so that the message is tried again, or ack the
// message.
//
// Do not add it if the topic also has messages with contracts of other programs. Add it after
// subscriber.KeepError, which makes the record dead at once, and after Watermill's
// PoisonQueue:
//
//	router.AddMiddleware(subscriber.KeepError, marshaler.RefuseUnknown)
func (m *Marshaler) RefuseUnknown(next message.HandlerFunc) message.HandlerFunc {
	return m.registry.RefuseUnknown(m.identify, next)
}

func (m *Marshaler) identify(msg *message.Message) (name string, version int, err error) {
	if name = msg.Metadata.Get(MetadataName); name == "" {
		if old, ok := m.registry.fromWatermill(msg); ok {
			return old.contract.name, old.version, nil
		}
		return "", 0, NoContract(MetadataName)
	}
	version, err = ParseVersion(name, MetadataVersion, msg.Metadata.Get(MetadataVersion))
	return name, version, err
}
