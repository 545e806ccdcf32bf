package sagas

import (
	"encoding/json"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill/storekit"
)

// Marshaler encodes values as messages and decodes them. Every marshaler for Watermill's
// package cqrs implements it, such as cqrs.JSONMarshaler and contracts.Marshaler. It must be
// safe for concurrent use. The record keeps the text of its errors as the last error, so they
// must not contain payloads.
type Marshaler interface {
	// Marshal makes a message with a new UUID.
	Marshal(v any) (*message.Message, error)
	// Unmarshal decodes the message into v, a pointer.
	Unmarshal(msg *message.Message, v any) error
	// Name returns the name of the type of v, which is a value or a pointer to one.
	Name(v any) string
	// NameFromMessage returns the name of the type that Marshal wrote into the message.
	NameFromMessage(msg *message.Message) string
}

// plainJSON is the default marshaler. It does not name types, so all messages of a topic have
// one type.
type plainJSON struct{}

func (plainJSON) Marshal(v any) (*message.Message, error) {
	payload, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("outmill/sagas: %w", storekit.JSONError("encode as JSON", err))
	}
	return message.NewMessage(watermill.NewUUID(), payload), nil
}

func (plainJSON) Unmarshal(msg *message.Message, v any) error {
	if err := json.Unmarshal(msg.Payload, v); err != nil {
		return storekit.JSONError("decode from JSON", err)
	}
	return nil
}

func (plainJSON) Name(any) string                         { return "" }
func (plainJSON) NameFromMessage(*message.Message) string { return "" }
