// Package subscriber is a Watermill Subscriber for an Outmill store.
//
// It claims committed records in batches, passes each to the router as a message, extends
// the leases while handlers run, and collects acks into few statements. A nack makes the
// record due again after the retry policy's backoff; after the last attempt the record is
// dead. A handler's error (outmill.Permanent, RetryAfter, Snooze, and the text for
// last_error) reaches the subscriber only through the middleware [KeepError]: add it to the
// router first.
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
// If a worker dies repeatedly while it holds a record, the record is a suspect: it may kill
// its worker. A suspect is handled alone and goes dead after the last attempt; other
// records are handled as usual.
//
// # Watermill's middlewares
//
// They work as with any subscriber, in any order with KeepError. Three of them need care.
// PoisonQueue treats every error as a failure, including RetryAfter, and including Snooze
// if PoisonQueue is inside KeepError: use PoisonQueueWithFilter with outmill.IsPermanent.
// Deduplicator treats the retry of a failed message as a duplicate, so the router acks the
// message unhandled: let Retry run inside Deduplicator, or publish with
// outmill.SetDedupKey. DelayOnError goes inside KeepError: its delays then take the place of
// Config.Retry's waits, and Config.Retry still ends the attempts. They grow as long as the same
// process handles the message; another process begins with InitialInterval.
//
// # Groups
//
// Every subscriber of a group shares the topic's messages; each group gets all of them. A
// group exists from its first Subscribe (or SubscribeInitialize) on and gets the messages
// that are appended afterwards. Messages of a topic that no group reads yet wait for the
// first group.
package subscriber
