// Package cloudevents has a marshaler for Watermill's package cqrs that writes and reads the
// messages of a registry of contracts as CloudEvents 1.0.
//
//	marshaler, err := cloudevents.New(registry, cloudevents.Config{Source: "https://shop.example.com/orders"})
//
// An event is in binary mode: the payload is the event's data, and its attributes are
// metadata with the names of the Kafka protocol binding (ce_id, ce_source, ce_type, …,
// content-type). Outmill's kafka.Publisher and watermill-kafka's publisher write metadata as
// headers, so any SDK can read the CloudEvent on Kafka. The message's key (outmill.SetKey) is
// the record's key. Watermill's publishers for other brokers carry the same metadata; the
// protocol binding of the broker decides whether other programs recognise a CloudEvent.
//
// The event's type is the contract's name. CloudEvents has no attribute for a version, so the
// extension contractversion has it. Names, versions, upcasters and errors are those of
// package contracts.
//
// The event's time is the result of the type's method OccurredAt() time.Time, or else the
// time of the call of Marshal. outmill.SetOccurredAt does not change it: to use another time,
// set [MetadataTime] in the OnPublish hook of the bus.
//
// The messages do not have the metadata outmill_contract, so their readers must use this
// marshaler too. Before you change the marshaler of a topic, let its readers handle all
// messages of the old one, or use another topic for the events.
package cloudevents
