package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.mongodb.org/mongo-driver/v2/bson"
)

// operation is a message of a document, as NServiceBus.Storage.MongoDB writes it.
func operation(id, types string, options bson.D) bson.D {
	return bson.D{
		{Key: "MessageId", Value: id}, {Key: "Options", Value: options},
		{Key: "Body", Value: bson.Binary{Data: []byte(`{"OrderId":"` + id + `"}`)}},
		{Key: "Headers", Value: bson.D{
			{Key: "NServiceBus.MessageId", Value: id}, {Key: "NServiceBus.CorrelationId", Value: "c-1"},
			{Key: "NServiceBus.EnclosedMessageTypes", Value: types},
		}},
	}
}

func TestImportNServiceBus(t *testing.T) {
	t.Parallel()
	const placed = "Shop.OrderPlaced, Shop.Messages, Version=1.0.0.0, Culture=neutral, PublicKeyToken=null;Shop.IEvent, Shop.Messages"

	t.Run("the messages that were not dispatched are moved, of documents in the old form and in the new", func(t *testing.T) {
		t.Parallel()
		w := newOldMongo(t)
		w.insert("outboxrecord",
			bson.D{{Key: "_id", Value: "in-1"}, {Key: "Dispatched", Value: nil}, {Key: "TransportOperations", Value: bson.A{
				operation("m1", placed, bson.D{}), operation("m2", "Shop.BillOrder, Shop.Messages", bson.D{{Key: "Destination", Value: "billing"}}),
			}}},
			bson.D{{Key: "_id", Value: bson.D{{Key: "PartitionKey", Value: "sales"}, {Key: "MessageId", Value: "in-2"}}},
				{Key: "TransportOperations", Value: bson.A{operation("m3", placed, bson.D{})}}},
			bson.D{{Key: "_id", Value: "in-3"}, {Key: "Dispatched", Value: time.Now()}, {Key: "TransportOperations", Value: bson.A{}}})
		lines, err := w.tool(t.Context(), "nservicebus")
		require.NoError(t, err)
		require.Equal(t, "moved=3 repeated=0 leased=0 dead=0 malformed=0", lastLine(lines))
		require.Equal(t, 1, w.count("outboxrecord"), "what was dispatched stays")

		records := w.records()
		orders := ofTopic("Shop.OrderPlaced", records)
		require.Equal(t, []string{"m1", "m3"}, messageIDs(orders))
		require.Equal(t, `{"OrderId":"m1"}`, string(orders[0].Payload))
		require.Equal(t, "c-1", orders[0].CorrelationID)
		require.Equal(t, placed, orders[0].Metadata["NServiceBus.EnclosedMessageTypes"])
		require.Equal(t, []string{"m2"}, messageIDs(ofTopic("Shop.BillOrder", records)))
	})

	t.Run("a document with a delayed message is left whole, and named", func(t *testing.T) {
		t.Parallel()
		w := newOldMongo(t)
		w.insert("outboxrecord", bson.D{{Key: "_id", Value: "in-1"}, {Key: "TransportOperations", Value: bson.A{
			operation("m1", placed, bson.D{}), operation("m2", placed, bson.D{{Key: "DelayDeliveryWith", Value: "00:05:00"}}),
		}}})
		_, err := w.tool(t.Context(), "nservicebus")
		require.ErrorContains(t, err, "DelayDeliveryWith")
		require.ErrorContains(t, err, "in-1")
		require.Empty(t, w.records())
		require.Equal(t, 1, w.count("outboxrecord"))
	})
}
