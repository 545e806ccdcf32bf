package sagas

import (
	"encoding/json"
	"fmt"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill/storekit"
)

// Marshaler makes messages of values, and values of messages. Each marshaler of Watermill's
// package cqrs is one, such as cqrs.JSONMarshaler and contracts.Marshaler. It must be safe
// for concurrent use. Its errors become the last error of the record.
type Marshaler interface {
	// Marshal makes a message with a new UUID.
	Marshal(v any) (*message.Message, error)
	// Unmarshal fills v, a pointer.
	Unmarshal(msg *message.Message, v any) error
	// Name is the name of the type of v, which is a value or a pointer to it.
	Name(v any) string
	// NameFromMessage is the name that Marshal has given the message.
	NameFromMessage(msg *message.Message) string
}

// plainJSON is the marshaler of a Config without one. It names no types, so each topic has
// one.
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
