// Package contracts has a marshaler for Watermill's package cqrs that gives Go types stable
// names and versions in messages.
//
//	registry, err := contracts.NewRegistry(
//		contracts.Of[OrderPlaced]("orders.order-placed", 2, contracts.UpcastFrom(1, fromV1)),
//		contracts.Of[Page[Order]]("orders.page", 1),
//	)
//	marshaler := registry.Marshaler(contracts.MarshalerConfig{})
//
// Use the marshaler in place of cqrs.JSONMarshaler: in buses and processors of commands,
// events and groups of events. Watermill's own marshalers name a message by its Go type. If
// you rename or move the type, no handler takes the messages that have its old name. With
// contracts you write the name and the version in the code, next to the type, and each
// message has them in its metadata: [MetadataName] and [MetadataVersion]. On Kafka they are
// headers.
//
// # Versions
//
// Increase the version if readers of the current version would misunderstand the new payload;
// an optional new field needs no new version. A name has one Go type, for its current
// version, and an [UpcastFrom] for each older version that may still arrive. Handlers get
// only the current type. Deploy readers before publishers, because a reader refuses a version
// that it does not know.
//
// # Errors
//
// NewRegistry checks names, versions, duplicates, and that each upcaster leads to the next
// version. If a type has the method Validate() error, its values are checked before anything
// is written.
//
// A message of an unknown version, or with a payload that does not fit, is a permanent error
// (outmill.Permanent): with the middleware subscriber.KeepError its record goes dead at once,
// and can be requeued when the program knows the version. [Marshaler.RefuseUnknown] does the
// same for unknown names. With Watermill's PoisonQueueWithFilter and [ErrUnknownContract] or
// [ErrUnreadableMessage] the message goes to a topic instead. No error text contains a part
// of a payload.
//
// # Encodings
//
// Payloads are JSON, as cqrs.JSONMarshaler writes them. Package contracts/protobuf has
// Protocol Buffers, and [EncodedBy] takes any other [Codec]. The module contracts/cloudevents
// has a marshaler that writes CloudEvents 1.0 of the same registry.
//
// # Events for other services
//
// [IntegrationBus] takes only events with the marker [IntegrationEvent]. A program that
// publishes an internal event to other services by mistake does not compile.
//
// Contracts with a name and a version, and the marker for events that leave the service, are
// ideas of LiteBus.
package contracts
