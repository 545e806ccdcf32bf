// Package subscriber is a Watermill Subscriber over an Outmill store.
//
// It claims committed records in batches, hands them to the router one message
// each, extends their leases while handlers run, and gathers acks into few
// statements. A nack makes the record due again after the retry policy's
// backoff; after the last attempt it is dead. What a handler's error says
// (outmill.Permanent, RetryAfter, Snooze, and the text kept as last_error)
// reaches the subscriber through the middleware [KeepError]: add it to the
// router, first.
//
//	sub, err := subscriber.New(store, subscriber.Config{}, logger)
//	router.AddMiddleware(subscriber.KeepError)
//	router.AddConsumerHandler("ship", "orders", sub, ship)
//
// # Guarantees
//
// Delivery is at least once. A message comes again after a nack, when a worker
// dies before its ack is stored, when a handler takes longer than
// Config.MaxProcessing, or when the database cannot be reached for longer than
// a lease. One subscriber never delivers a record twice at a time.
//
// By default messages are handled concurrently, up to Config.MaxInFlight of a
// topic, in no promised order. Config.Order makes the records of a key, or of
// the whole topic, come one after the other, across all processes of a group.
//
// A record that is in hand while its worker dies, time after time, is suspected
// of killing it: it is handled alone, and goes dead after the last attempt,
// while its neighbours are handled as usual.
//
// # Watermill's middlewares
//
// They work as with any subscriber, in any order with KeepError. Two of them
// deserve a thought. PoisonQueue takes every error for a failure, RetryAfter too,
// and Snooze where it is inside of KeepError: use PoisonQueueWithFilter with
// outmill.IsPermanent.
// Deduplicator takes the second delivery of a message that failed for a
// duplicate, so the message is acked unhandled: let Retry run inside of it, or
// use outmill.SetDedupKey where messages are published.
//
// # Groups
//
// Every subscriber of a group shares the topic's messages; each group gets all
// of them. A group exists from its first Subscribe (or SubscribeInitialize) on
// and gets what is appended afterwards; messages of a topic that has no reader
// yet wait for the first group.
package subscriber
