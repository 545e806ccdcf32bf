// Package cloudevents writes and reads the messages of a registry of contracts as
// CloudEvents 1.0, as a marshaler for Watermill's package cqrs.
//
//	marshaler, err := cloudevents.New(registry, cloudevents.Config{Source: "https://shop.example.com/orders"})
//
// An event is in binary mode: the payload is the event's data, and its attributes are metadata
// named as the Kafka protocol binding has them (ce_id, ce_source, ce_type, …, content-type).
// Outmill's kafka.Publisher and watermill-kafka's write metadata as headers, so what reaches
// Kafka is a CloudEvent that any SDK reads, and the message's key (outmill.SetKey) is the
// record's key. Watermill's publishers for other brokers carry the same metadata; whether
// another program takes them for a CloudEvent is a matter of that broker's protocol binding.
//
// The type is the contract's name. CloudEvents has no attribute for a version, so the
// extension contractversion has it. See package contracts for names, versions, upcasters, and
// refusals: they are the same.
//
// The time is what the type's method OccurredAt() time.Time returns, else the time of the call of
// Marshal. outmill.SetOccurredAt does not change it: a bus whose OnPublish hook knows another
// time sets [MetadataTime].
//
// The messages have no metadata outmill_contract: readers use this marshaler too. Switch a
// topic over when its readers have handled what the other marshaler wrote, or give the events
// another topic.
package cloudevents
