package storekit

import (
	"maps"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
)

// HeaderUUID is the header in which Watermill's publishers for brokers write the UUID of a message.
const HeaderUUID = "_watermill_message_uuid"

// escapePrefix stands before metadata that must not become a header of its own name. It has no
// character that a header of Kafka, NATS or HTTP could not have.
const escapePrefix = "outmill-escaped-"

// ForBroker returns the message as a publisher for a broker sends it: without instructions, which
// mean nothing there, and with the prefix outmill-escaped- before the names that mean something to
// the broker or to its clients, because metadata may come from outside. It is the message itself if
// there is nothing to change, else a copy with the context; nil for nil. [RestoreHeaders] takes the
// prefix off again.
func ForBroker(msg *message.Message, reserved func(name string) bool) *message.Message {
	if msg == nil {
		return nil
	}
	data := DataOf(msg)
	var renamed map[string]string
	for name := range data {
		if reserved(name) || strings.HasPrefix(name, escapePrefix) {
			if renamed == nil {
				renamed = map[string]string{}
			}
			renamed[name] = escapePrefix + name
		}
	}
	if len(renamed) == 0 && len(data) == len(msg.Metadata) {
		return msg
	}
	sent := msg.CopyWithContext()
	sent.Metadata = maps.Clone(data)
	rename(sent.Metadata, renamed)
	return sent
}

// RestoreHeaders takes the prefix of [ForBroker] off the names of the message's metadata.
// subscriber.RestoreHeaders does so for the handlers of a router.
func RestoreHeaders(msg *message.Message) {
	renamed := map[string]string{}
	for name := range msg.Metadata {
		if original, escaped := strings.CutPrefix(name, escapePrefix); escaped {
			renamed[name] = original
		}
	}
	rename(msg.Metadata, renamed)
}

// rename gives entries other names. It reads all of them first, because the new name of one may be
// the old name of another.
func rename(metadata message.Metadata, to map[string]string) {
	values := make(map[string]string, len(to))
	for before, after := range to {
		values[after] = metadata[before]
		delete(metadata, before)
	}
	maps.Copy(metadata, values)
}
