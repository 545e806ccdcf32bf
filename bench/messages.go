package main

import (
	"fmt"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
)

// keys is the number of different keys of messages with keys.
const keys = 10_000

// payload is JSON, because watermill-sql's default column has this type.
func payload(i, size int) []byte {
	text := fmt.Sprintf(`{"number":%d,"pad":"`, i)
	out := make([]byte, 0, max(size, len(text)+2))
	out = append(out, text...)
	for len(out) < size-2 {
		out = append(out, 'x')
	}
	return append(out, '"', '}')
}

func keyOf(i int) string { return fmt.Sprintf("customer-%d", i%keys) }

// records returns the messages as records of the outbox.
func records(topic string, from, n, size int, keyed bool) []*outmill.Record {
	list := make([]*outmill.Record, n)
	for i := range list {
		r := &outmill.Record{Topic: topic, MessageID: messageID(from + i), Payload: payload(from+i, size),
			Metadata: map[string]string{"name": "order.placed"}}
		if keyed {
			r.Key = keyOf(from + i)
		}
		list[i] = r
	}
	return list
}

// messages returns the same messages as Watermill messages.
func messages(from, n, size int) message.Messages {
	list := make(message.Messages, n)
	for i := range list {
		list[i] = message.NewMessage(messageID(from+i), payload(from+i, size))
		list[i].Metadata.Set("name", "order.placed")
	}
	return list
}

func messageID(i int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", i) }
