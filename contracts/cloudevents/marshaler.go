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
	// Source says where the events come from: a URI, or a reference to one, such as
	// https://shop.example.com/orders or /orders. It is required. Id and source together are
	// unique.
	Source string

	// NewID makes the ids of events, which are also the UUIDs of their messages. Default
	// watermill.NewUUID.
	NewID func() string

	// Now tells the time of events that have no method OccurredAt() time.Time. Default
	// time.Now.
	Now func() time.Time

	// Attributes returns further attributes of an event, such as subject, dataschema, or
	// extensions, by their names without ce_. A name is 1 to 20 lower-case letters and digits,
	// and none of those that the marshaler sets; a value is text without control characters,
	// and an empty one is left out. Default none. It may be called concurrently.
	Attributes func(event any) map[string]string

	// DefaultVersion is the version of events of other producers, which have no extension
	// contractversion. Default 0: they are refused.
	DefaultVersion int
}

// Validate reports every setting that makes no sense, as outmill.ErrInvalidConfig. New calls
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

// Marshaler makes CloudEvents of values, and values of CloudEvents, for the buses and
// processors of Watermill's package cqrs. It is safe for concurrent use.
type Marshaler struct {
	registry *contracts.Registry
	cfg      Config
}

// New makes a marshaler of the registry's contracts. A nil registry and a setting that makes
// no sense are outmill.ErrInvalidConfig.
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

// Marshal makes the message of a value, or of what a pointer points to. The id is the
// message's UUID: code that changes the UUID afterwards changes MetadataID too.
//
// Errors are those of contracts.Registry.Encode, and ErrInvalidMessage of package contracts for
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

// Unmarshal fills v, a pointer to a value of the contract that the event's type names. An
// event of an older version goes through the upcasters.
//
// Errors are those of contracts.Registry.Decode, and are permanent. ErrUnknownContract of package
// contracts is also the error for what is no CloudEvent 1.0 in binary mode.
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

// NameFromMessage returns the event's type, and "" for none.
func (m *Marshaler) NameFromMessage(msg *message.Message) string {
	return msg.Metadata.Get(MetadataType)
}

// RefuseUnknown is a router middleware that refuses what is no CloudEvent of a contract in the
// registry: see contracts.Marshaler.RefuseUnknown.
func (m *Marshaler) RefuseUnknown(next message.HandlerFunc) message.HandlerFunc {
	return m.registry.RefuseUnknown(m.identify, next)
}

func (m *Marshaler) identify(msg *message.Message) (name string, version int, err error) {
	if structured(msg.Metadata.Get(MetadataContentType)) {
		return "", 0, refused("the message is a CloudEvent in structured mode: have its producer send it in binary mode")
	}
	if got := msg.Metadata.Get(MetadataSpecVersion); got != SpecVersion {
		return "", 0, refused(fmt.Sprintf("the message is no CloudEvent of version %s: its metadata %q is %.20q",
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

// structured tells by the content type, as the Kafka protocol binding says.
func structured(contentType string) bool {
	const mediaType = "application/cloudevents"
	return len(contentType) >= len(mediaType) && strings.EqualFold(contentType[:len(mediaType)], mediaType)
}
