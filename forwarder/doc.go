// Package forwarder moves committed records from an Outmill store to any
// Watermill Publisher, usually a broker's.
//
//	pub, err := kafka.NewPublisher(…)
//	fwd, err := forwarder.New(store, pub, forwarder.Config{}, logger)
//	err = fwd.Run(ctx)
//
// It claims batches, publishes, and acks; the three overlap. A publisher that
// takes batches (outmill.BatchPublisher, such as package kafka's) gets them
// whole. With any other one the forwarder publishes one message at a time in
// many lanes, and the messages of a key always in the same lane. Either way
// the messages of one topic and key arrive in the order in which they were
// appended.
//
// # Guarantees
//
// Delivery is at least once: a crash between the broker's acknowledgement and
// the ack in the store publishes a message again, with the same message UUID.
//
// # When publishing fails
//
//   - One message cannot be delivered (outmill.Permanent: too large, say): it
//     goes dead, the others go on.
//   - The broker refuses a topic (outmill.ErrTopicUnavailable): the topic is
//     held and tried again later, other topics go on, no attempt is counted.
//   - The broker is away: all is given back, the forwarder pauses and probes
//     with one record until the broker takes it. No attempt is counted and
//     nothing goes dead, however long it lasts.
//   - A publisher that explains nothing fails for one message and not for
//     others: that message is retried by the retry policy, attempts counted.
package forwarder
