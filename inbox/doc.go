// Package inbox makes Watermill handlers idempotent: a message that comes twice is handled
// once. It is router middleware for messages of any subscriber.
//
// One transaction of a store contains, in this order,
//
//	note ─► handler and the messages that it publishes ─► messages that it returns ─► ack
//
// The note says that this consumer has handled this message, for this group, topic and tenant, so
// one inbox may serve all handlers of a router: see Config.Consumer. If the message comes again,
// the inbox finds the note, and acks the message without calling the handler. If any part fails,
// the whole transaction is rolled back, and the message comes again. If the message comes
// from an Outmill subscriber on the same store, the ack is part of the transaction, so a
// crash cannot separate the work from the ack. For other subscribers, such as Kafka's, the
// ack follows the commit; a crash between the two delivers the message again, and the inbox
// finds its note.
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
// [Within] puts a transaction of another library around it, such as one of gorm, bun, sqlx, sqlc
// or ent.
//
// # Order of middleware
//
// Add Watermill's Retry, Timeout, PoisonQueue and Recoverer, and subscriber.KeepError,
// before the inbox: a transaction that has failed cannot be continued, so each attempt needs
// a new one. Add middleware that changes the returned messages, such as [Inherit], after it.
//
// If the transaction fails for a temporary reason, such as a deadlock, the store repeats it
// and the handler runs again. So the handler must have no effects outside of the transaction.
//
// # How long notes are kept
//
// A note must be kept longer than any redelivery of its message can take. The default is 7
// days. A dead record that is requeued after that is handled again.
//
// The inbox is an idempotent receiver (Hohpe and Woolf, Enterprise Integration Patterns) that
// keeps its notes in the database of the handler's work, as NServiceBus's outbox does.
package inbox
