package importmongo

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/outmill/outmill"
)

// A document of NServiceBus's outbox is a message that was handled, with the messages that it sends: the
// TransportOperations. Dispatched is the time at which these were sent.

func readOutbox(bson.Raw, Options, time.Time) (standing, error) { return standing{}, nil }

func operations(doc bson.Raw) (parts []bson.Raw, err error) {
	list, ok := doc.Lookup("TransportOperations").ArrayOK()
	if !ok {
		return nil, errors.New("it has no list of TransportOperations")
	}
	values, err := list.Values()
	for _, v := range values {
		part, ok := v.DocumentOK()
		if !ok {
			return nil, fmt.Errorf("one of its TransportOperations is a %s", v.Type)
		}
		parts = append(parts, part)
	}
	return parts, err
}

// The properties of a delivery that is postponed.
var postpones = []string{"DelayDeliveryWith", "DoNotDeliverBefore"}

func operationRecord(doc bson.Raw, r *outmill.Record) error {
	var operation struct {
		MessageID string            `bson:"MessageId"`
		Options   map[string]string `bson:"Options"`
		Body      []byte            `bson:"Body"`
		Headers   map[string]string `bson:"Headers"`
	}
	if err := bson.Unmarshal(doc, &operation); err != nil {
		return err
	}
	for _, name := range postpones {
		if operation.Options[name] != "" {
			return fmt.Errorf("one of its TransportOperations has the option %s: let the old endpoint send it", name)
		}
	}
	r.MessageID, r.Payload, r.Metadata = operation.MessageID, operation.Body, maps.Clone(operation.Headers)
	r.CorrelationID = operation.Headers["NServiceBus.CorrelationId"]
	if r.MessageID == "" {
		return errors.New("one of its TransportOperations has no MessageId")
	}
	if r.Topic == "" {
		// The first type, without its assembly.
		types, _, _ := strings.Cut(operation.Headers["NServiceBus.EnclosedMessageTypes"], ";")
		r.Topic, _, _ = strings.Cut(types, ",")
	}
	if r.Topic = strings.TrimSpace(r.Topic); r.Topic == "" {
		return errors.New("one of its TransportOperations has no header NServiceBus.EnclosedMessageTypes, so no topic: use --topic")
	}
	return nil
}
