package contracts

import (
	"strconv"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
)

// Metadata of a message that has a contract.
const (
	MetadataName    = "outmill_contract"
	MetadataVersion = "outmill_contract_version"
)

var _ cqrs.CommandEventMarshaler = (*Marshaler)(nil)

// MarshalerConfig has the settings of a [Marshaler]. The zero value is ready to use.
type MarshalerConfig struct {
	// NewUUID makes the UUIDs of messages. Default watermill.NewUUID.
	NewUUID func() string
}

// Marshaler makes messages of values, and values of messages, for the buses and processors
// of Watermill's package cqrs. [Registry.Marshaler] makes it. It is safe for concurrent use.
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

// Marshal makes the message of a value, or of what a pointer points to, with the name and
// the version of its contract in the metadata. What the value's method OccurredAt() time.Time
// returns, unless zero, is set by outmill.SetOccurredAt.
//
// Errors are those of [Registry.Encode].
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

// Unmarshal fills v, a pointer to a value of the message's contract. A message of an older
// version goes through the upcasters.
//
// Errors are those of [Registry.Decode], and are permanent. v is undefined after an error.
func (m *Marshaler) Unmarshal(msg *message.Message, v any) error {
	name, version, err := m.identify(msg)
	if err != nil {
		return err
	}
	return m.registry.Decode(name, version, msg.Payload, v)
}

// Name is [Registry.Name].
func (m *Marshaler) Name(v any) string { return m.registry.Name(v) }

// NameFromMessage returns the name of the contract that the message has, and "" for none.
func (m *Marshaler) NameFromMessage(msg *message.Message) string {
	name := msg.Metadata.Get(MetadataName)
	if name == "" {
		if old, ok := m.registry.fromWatermill(msg); ok {
			return old.contract.name
		}
	}
	return name
}

// RefuseUnknown is a router middleware that refuses messages whose contract is not in the
// registry, or not in that version, with a permanent [UnknownContractError]. Processors of
// package cqrs look at names only, and return an error of their own for a name for which they
// have no handler, which is tried again; or they ack the message.
//
// Leave it out where a program reads topics that have messages of other programs' contracts.
// Add it inside of subscriber.KeepError, which makes the record dead at once, and inside of
// Watermill's PoisonQueue:
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
