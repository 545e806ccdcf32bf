// Package forwarder moves committed records from an Outmill store to any
// Watermill Publisher, usually a broker's.
//
//	pub, err := kafka.NewPublisher(…)
//	fwd, err := forwarder.New(store, pub, forwarder.Config{}, logger)
//	err = fwd.Run(ctx)
//
// It claims batches, publishes, and acks; the three overlap. A publisher that takes batches
// (storekit.BatchPublisher, such as package kafka's) gets each batch in one call. With any
// other publisher the forwarder publishes one message per call, in several lanes
// (goroutines), and the messages of a key one after the other in one lane. Either way the
// messages of one topic and key arrive in the order in which they were appended. When the
// forwarder starts, it logs which of the two it does. A publisher that takes records as they are
// (storekit.RawPublisher, such as package kafka's) gets no messages unless a hook needs them.
//
// A decorator around a publisher of batches must have the method PublishBatch too;
// otherwise it hides that of the publisher. If it has Unwrap() message.Publisher instead,
// batches bypass it: its own Publish does not see them. A decorator with neither method,
// such as that of Watermill's components/metrics, costs a round trip for each message, and
// the forwarder logs a warning.
//
// # Guarantees
//
// Delivery is at least once: a crash between the broker's acknowledgement and the ack in
// the store publishes a message again, with the same message UUID. The order of a key holds
// for the first arrival of each message.
//
// # When publishing fails
//
//   - One message cannot be delivered (outmill.Permanent: it is too large, or Kafka never
//     allows the name of its topic): it goes dead, and the others continue.
//   - The broker refuses a topic (outmill.ErrTopicUnavailable), or fails for one topic
//     only: the forwarder holds the topic, tries it again later, and continues with other
//     topics. No attempt counts.
//   - The broker is unavailable: the forwarder releases all records, pauses, and probes
//     with one record until the broker accepts it. No attempt counts and no record goes
//     dead, however long the outage lasts.
//   - The publisher's error does not name the cause, as with most publishers: if no message
//     is delivered, the forwarder treats it as an outage. If a message fails for as long as
//     Config.MaxErrorBackoff although others are delivered, the message itself is the
//     cause: the retry policy applies, and its attempts count. Config.Classify can name the
//     cause.
//   - The publisher does not return: the forwarder publishes nothing else until it returns.
//     Other processes of the group can claim the records.
//
// The first pause is half a second and the first hold two; they grow to
// Config.MaxErrorBackoff.
package forwarder
