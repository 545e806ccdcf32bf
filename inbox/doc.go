// Package inbox makes Watermill handlers idempotent: a message that comes twice is handled
// once. It is router middleware for messages of any subscriber.
//
// One transaction of a store contains
//
//	note ─► handler ─► what it publishes through the outbox ─► what it returns ─► ack
//
// in this order. The note says that this consumer has handled this message; a duplicate
// finds it, and is acked without its handler. If anything fails, all of it is rolled back,
// and the message comes again. Where the message comes from an Outmill subscriber on the
// same store, the ack is in the transaction too: then the work is done exactly once, and
// nothing can go wrong between the commit and the ack. For messages of other subscribers,
// such as Kafka's, the ack follows the commit, and a crash between the two delivers the
// message again, which then finds its note.
//
// The handler gets the transaction in the context of its message:
//
//	box, err := inbox.New(store, inbox.Config{Consumer: "billing", Publisher: pub})
//	router.AddMiddleware(subscriber.KeepError, box.Middleware)
//	router.AddConsumerHandler("billing", "orders", sub, func(msg *message.Message) error {
//		tx, _ := store.Tx(msg.Context()) // *sql.Tx, pgx.Tx, …: the store's own accessor
//		…
//	})
//
// # Where it stands among middleware
//
// The inbox belongs inside of Watermill's Retry, Timeout, PoisonQueue and Recoverer, and
// of subscriber.KeepError: they are added before it. A transaction that has failed cannot be
// continued, so an attempt needs a new one. Middleware that changes what the handler returns,
// such as [Inherit], is added after it.
//
// The function runs again where the transaction fails for a reason that passes, such as a
// deadlock. So the handler must have no effects outside of the transaction.
//
// # How long notes are kept
//
// A note must outlive every redelivery of its message. The default is 7 days. A dead record
// that is requeued after that is handled again.
//
// The idea is that of the idempotent receiver (Hohpe and Woolf, Enterprise Integration
// Patterns) with its notes in the database of the work, as in NServiceBus's outbox.
package inbox
