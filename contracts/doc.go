// Package contracts gives Go types stable names and versions in messages, as a marshaler for
// Watermill's package cqrs.
//
//	registry, err := contracts.NewRegistry(
//		contracts.Of[OrderPlaced]("orders.order-placed", 2, contracts.UpcastFrom(1, fromV1)),
//		contracts.Of[Page[Order]]("orders.page", 1),
//	)
//	marshaler := registry.Marshaler(contracts.MarshalerConfig{})
//
// The marshaler goes where cqrs.JSONMarshaler goes: into buses and processors of commands,
// events and groups of events. Watermill's own marshalers name a message by its Go type, so
// that a type that is renamed or moved leaves the messages of its old name without a handler.
// Here the name and the version are in the code, next to the type, and in the metadata of
// each message: [MetadataName] and [MetadataVersion]. The record has them, and so has a
// message on Kafka, as headers.
//
// # Versions
//
// A version grows when readers of the version before would misunderstand the payload; a new
// field that may be absent needs no new version. A name has one type, which is its current
// version, and an [UpcastFrom] for each older version that may still arrive. Handlers know
// the current type only. Deploy readers before publishers: a version that the reader does not
// know yet is refused.
//
// # Refusals
//
// Registrations are checked when the registry is made: names, versions, duplicates, and
// upcasters that do not lead from version to version. A value whose type has the method
// Validate() error is checked before anything is written.
//
// A message of an unknown version, or with a payload that does not fit, is a permanent error
// (outmill.Permanent): with the middleware subscriber.KeepError its record goes dead at once,
// and can be requeued when the program knows it. [Marshaler.RefuseUnknown] does the same for
// unknown names. With Watermill's PoisonQueueWithFilter and [ErrUnknownContract], or
// [ErrUnreadableMessage], the message goes to a topic instead. No error text has a part of a
// payload.
//
// # Encodings
//
// Payloads are JSON, as cqrs.JSONMarshaler writes them. Package contracts/protobuf has
// Protocol Buffers, and [EncodedBy] takes any other [Codec]. The module contracts/cloudevents
// has a marshaler that writes CloudEvents 1.0 of the same registry.
//
// # Events for other services
//
// [IntegrationBus] takes only events with the marker [IntegrationEvent]. To publish an
// internal event to other services by mistake does not compile.
//
// The idea of contracts with a name and a version, and of a marker for events that leave the
// service, comes from LiteBus.
package contracts
