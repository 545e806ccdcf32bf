// Package forwarder moves committed records from an Outmill store to any
// Watermill Publisher, usually a broker's.
//
//	pub, err := kafka.NewPublisher(…)
//	fwd, err := forwarder.New(store, pub, forwarder.Config{}, logger)
//	err = fwd.Run(ctx)
//
// It claims batches, publishes, and acks; the three overlap. A publisher that
// takes batches (storekit.BatchPublisher, such as package kafka's) gets them
// whole. With any other one the forwarder publishes one message at a time in
// many lanes, and the messages of a key one after the other in one lane. Either
// way the messages of one topic and key arrive in the order in which they were
// appended. The forwarder logs which of the two it does when it starts.
//
// A decorator around a publisher of batches must have the method PublishBatch
// too, or it hides that of the publisher. One that has Unwrap() message.Publisher
// instead lets batches go past it: its own Publish sees nothing of them. A
// decorator with neither of the two, such as that of Watermill's components/metrics,
// costs a round trip for each message, which the forwarder warns of.
//
// # Guarantees
//
// Delivery is at least once: a crash between the broker's acknowledgement and
// the ack in the store publishes a message again, with the same message UUID.
// The order of a key is that of first arrivals.
//
// # When publishing fails
//
//   - One message cannot be delivered (outmill.Permanent: it is too large, or
//     Kafka never allows the name of its topic): it goes dead, the others go on.
//   - The broker refuses a topic (outmill.ErrTopicUnavailable), or has trouble
//     with one topic only: the topic is held and tried again later, other topics
//     go on, no attempt is counted.
//   - The broker is away: all is given back, the forwarder pauses and probes
//     with one record until the broker takes it. No attempt is counted and
//     nothing goes dead, however long it lasts.
//   - The publisher does not say what is wrong, as most do not: if nothing gets
//     through, that is an outage. A message that fails for as long as
//     Config.MaxErrorBackoff although others get through is to blame itself: it
//     is retried by the retry policy, attempts counted. Config.Classify leaves no
//     doubt.
//   - The publisher does not return: nothing is published past it. Other
//     processes of the group go on with the records.
//
// The first pause is half a second and the first hold two; they grow to
// Config.MaxErrorBackoff.
package forwarder
