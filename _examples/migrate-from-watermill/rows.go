package main

import (
	"encoding/json"
	"fmt"
	"strconv"

	wsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
)

// A subscriber returns messages and not rows. So the data of the row travel in the metadata of the
// message, and noteOf removes them.
const (
	metadataOffset = "outmill_migrate_offset"
	metadataDefect = "outmill_migrate_defect"
)

// logSchema is watermill-sql's default, except for a row whose metadata cannot be read: the default
// would retry it for ever.
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

// note names the row of a message.
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

// dedupKey identifies the row. The uuid is not enough, because a service may publish one message
// twice, and both must arrive.
func (n note) dedupKey() string {
	return "watermill-sql/" + n.topic + "/" + n.offset + "/" + n.uuid
}
