package main

import (
	"encoding/json"
	"fmt"
	"strconv"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
)

// A subscriber hands over messages and not rows, so what is known of the row
// travels in the message's metadata, and is taken out again by noteOf.
const (
	metadataOffset = "outmill_migrate_offset"
	metadataDefect = "outmill_migrate_defect"
)

// logSchema is watermill-sql's default, save for a row whose metadata cannot
// be read: there watermill-sql's own would try for ever.
type logSchema struct{ wsql.DefaultPostgreSQLSchema }

func (logSchema) UnmarshalMessage(row wsql.Scanner) (wsql.Row, error) {
	var r wsql.Row
	var transaction int64
	if err := row.Scan(&r.Offset, &transaction, &r.UUID, &r.Payload, &r.Metadata); err != nil {
		return wsql.Row{}, fmt.Errorf("read a row of watermill-sql: %w", err)
	}
	r.ExtraData = map[string]any{"transaction_id": transaction}
	r.Msg = messageOf(r)
	return r, nil
}

func messageOf(r wsql.Row) *message.Message {
	msg := message.NewMessage(string(r.UUID), r.Payload)
	if r.Metadata != nil && json.Unmarshal(r.Metadata, &msg.Metadata) != nil {
		msg.Metadata = message.Metadata{metadataDefect: "its metadata are no JSON object of strings"}
	}
	if msg.Metadata == nil {
		msg.Metadata = message.Metadata{}
	}
	msg.Metadata.Set(metadataOffset, strconv.FormatInt(r.Offset, 10))
	return msg
}

// note says which row a message came from.
type note struct {
	topic, offset, uuid, defect string
}

func noteOf(topic string, msg *message.Message) note {
	n := note{topic: topic, offset: msg.Metadata[metadataOffset], uuid: msg.UUID, defect: msg.Metadata[metadataDefect]}
	delete(msg.Metadata, metadataOffset)
	delete(msg.Metadata, metadataDefect)
	return n
}

func (n note) String() string {
	return fmt.Sprintf("topic %s, offset %s, uuid %q", n.topic, n.offset, n.uuid)
}

// dedupKey is the row's own. The uuid alone would not do: a service may well
// publish one message twice, and both are to arrive.
func (n note) dedupKey() string {
	return "watermill-sql/" + n.topic + "/" + n.offset + "/" + n.uuid
}
