package cloudevents

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/contracts"
)

// SpecVersion is the version of CloudEvents that is written and read.
const SpecVersion = "1.0"

// Metadata of a message that is a CloudEvent. Other attributes have the prefix ce_ too.
const (
	MetadataID          = "ce_id"
	MetadataSource      = "ce_source"
	MetadataSpecVersion = "ce_specversion"
	MetadataType        = "ce_type"
	MetadataTime        = "ce_time"
	// MetadataVersion is an extension: the version of the contract that ce_type names.
	MetadataVersion = "ce_contractversion"
	// MetadataContentType is the attribute datacontenttype, which has no prefix.
	MetadataContentType = "content-type"
)

// Config has the settings of a [Marshaler].
type Config struct {
	// Source identifies the producer of the events: a URI or a URI reference, such as
	// https://shop.example.com/orders or /orders. It is required. The id and the source
	// together must be unique.
	Source string

	// NewID makes the ids of events, which are also the UUIDs of their messages. Default
	// watermill.NewUUID.
	NewID func() string

	// Now returns the time for events without a method OccurredAt() time.Time. Default
	// time.Now.
	Now func() time.Time

	// Attributes returns further attributes of an event, such as subject, dataschema, or
	// extensions, by their names without ce_. A name has 1 to 20 lower-case letters and digits,
	// and must not be an attribute that the marshaler sets. A value is text without control
	// characters; an empty value is omitted. It may be called concurrently. Default nil.
	Attributes func(event any) map[string]string

	// DefaultVersion is the version of events of other producers that have no extension
	// contractversion. Default 0: they are refused.
	DefaultVersion int
}

// Validate returns an outmill.ErrInvalidConfig for every invalid setting, joined. New calls
// it.
func (c Config) Validate() error {
	var errs []error
	if reason := sourceReason(c.Source); reason != "" {
		errs = append(errs, fmt.Errorf("%w: cloudevents.Config.Source %s: want a URI such as https://shop.example.com/orders",
			outmill.ErrInvalidConfig, reason))
	}
	if c.DefaultVersion < 0 || c.DefaultVersion > contracts.MaxVersion {
		errs = append(errs, fmt.Errorf("%w: cloudevents.Config.DefaultVersion is %d: want 0 (none) to %d",
			outmill.ErrInvalidConfig, c.DefaultVersion, contracts.MaxVersion))
	}
	return errors.Join(errs...)
}

func sourceReason(source string) string {
	if source == "" {
		return "is empty"
	}
	if _, err := url.Parse(source); err != nil || textReason(source) != "" || strings.ContainsAny(source, " <>\"{}|\\^`") {
		return fmt.Sprintf("is %q", source)
	}
	return ""
}

var _ cqrs.CommandEventMarshaler = (*Marshaler)(nil)

// Marshaler encodes values as CloudEvents, and decodes them, for the buses and processors of
// Watermill's package cqrs. It is safe for concurrent use.
type Marshaler struct {
	registry *contracts.Registry
	cfg      Config
}

// New makes a marshaler of the registry's contracts. It returns outmill.ErrInvalidConfig for
// a nil registry or an invalid setting.
func New(registry *contracts.Registry, cfg Config) (*Marshaler, error) {
	if registry == nil {
		return nil, fmt.Errorf("%w: cloudevents.New: the registry is nil", outmill.ErrInvalidConfig)
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.NewID == nil {
		cfg.NewID = watermill.NewUUID
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Marshaler{registry, cfg}, nil
}

// Marshal encodes a value, or the value that a pointer points to, as a message. The message's
// UUID is the event's id: code that changes the UUID afterwards must also change MetadataID.
//
// Marshal returns the errors of contracts.Registry.Encode, and contracts.ErrInvalidMessage for
// attributes that CloudEvents does not allow.
func (m *Marshaler) Marshal(v any) (*message.Message, error) {
	encoded, err := m.registry.Encode(v)
	if err != nil {
		return nil, err
	}
	msg := message.NewMessage(m.cfg.NewID(), encoded.Payload)
	if err := m.setAttributes(msg, v, encoded); err != nil {
		return nil, &contracts.MessageError{
			Name: encoded.Contract.Name(), Version: encoded.Contract.Version(), Kind: contracts.ErrInvalidMessage, Err: err,
		}
	}
	return msg, nil
}

func (m *Marshaler) setAttributes(msg *message.Message, v any, encoded contracts.Encoded) error {
	occurred := encoded.OccurredAt
	if occurred.IsZero() {
		occurred = m.cfg.Now()
	}
	at, err := occurred.UTC().MarshalText()
	if err != nil {
		return fmt.Errorf("the time of the event: %w", err)
	}
	if msg.UUID == "" {
		return errors.New("cloudevents.Config.NewID returned an empty id")
	}
	if m.cfg.Attributes != nil {
		for name, value := range m.cfg.Attributes(v) {
			if reason := attributeReason(name, value); reason != "" {
				return fmt.Errorf("attribute %.40q %s", name, reason)
			}
			if value != "" {
				msg.Metadata[prefix+name] = value
			}
		}
	}
	msg.Metadata[MetadataID] = msg.UUID
	msg.Metadata[MetadataSource] = m.cfg.Source
	msg.Metadata[MetadataSpecVersion] = SpecVersion
	msg.Metadata[MetadataType] = encoded.Contract.Name()
	msg.Metadata[MetadataTime] = string(at)
	msg.Metadata[MetadataVersion] = strconv.Itoa(encoded.Contract.Version())
	msg.Metadata[MetadataContentType] = encoded.Contract.ContentType()
	return nil
}

// Unmarshal decodes the event into v, a pointer to a value of the contract that the event's
// type names. The upcasters convert an event of an older version.
//
// Unmarshal returns the errors of contracts.Registry.Decode, and a permanent
// contracts.ErrUnknownContract for a message that is not a CloudEvent 1.0 in binary mode.
func (m *Marshaler) Unmarshal(msg *message.Message, v any) error {
	name, version, err := m.identify(msg)
	if err != nil {
		return err
	}
	return m.registry.Decode(name, version, msg.Payload, v)
}

// Name returns the name of the contract of v, as contracts.Marshaler does.
func (m *Marshaler) Name(v any) string {
	return m.registry.Name(v)
}

// NameFromMessage returns the event's type, or "" if it has none.
func (m *Marshaler) NameFromMessage(msg *message.Message) string {
	return msg.Metadata.Get(MetadataType)
}

// RefuseUnknown is router middleware that refuses a message if it is not a CloudEvent of a
// contract in the registry: see contracts.Marshaler.RefuseUnknown.
func (m *Marshaler) RefuseUnknown(next message.HandlerFunc) message.HandlerFunc {
	return m.registry.RefuseUnknown(m.identify, next)
}

func (m *Marshaler) identify(msg *message.Message) (name string, version int, err error) {
	if structured(msg.Metadata.Get(MetadataContentType)) {
		return "", 0, refused("the message is a CloudEvent in structured mode: change its producer to binary mode")
	}
	if got := msg.Metadata.Get(MetadataSpecVersion); got != SpecVersion {
		return "", 0, refused(fmt.Sprintf("the message is not a CloudEvent of version %s: its metadata %q is %.20q",
			SpecVersion, MetadataSpecVersion, got))
	}
	if name = msg.Metadata.Get(MetadataType); name == "" {
		return "", 0, contracts.NoContract(MetadataType)
	}
	text, has := msg.Metadata[MetadataVersion]
	if !has && m.cfg.DefaultVersion > 0 {
		return name, m.cfg.DefaultVersion, nil
	}
	version, err = contracts.ParseVersion(name, MetadataVersion, text)
	return name, version, err
}

func refused(reason string) error {
	return outmill.Permanent(&contracts.UnknownContractError{Reason: reason})
}

// structured reports whether the event is in structured mode, by the content type, as the
// Kafka protocol binding specifies.
func structured(contentType string) bool {
	const mediaType = "application/cloudevents"
	return len(contentType) >= len(mediaType) && strings.EqualFold(contentType[:len(mediaType)], mediaType)
}
