// Package inbox makes Watermill handlers idempotent: a message that comes twice is handled
// once. It is router middleware for messages of any subscriber.
//
// One transaction of a store contains, in this order,
//
//	note ─► handler and the messages that it publishes ─► messages that it returns
//
// The message is acked after the commit.
//
// The note says that this consumer has handled this message, for this group, topic and tenant, so
// one inbox may serve all handlers of a router: see Config.Consumer. If the message comes again,
// the inbox finds the note, and acks the message without calling the handler. If any part fails,
// the whole transaction is rolled back, and the message comes again. A crash between the commit
// and the ack delivers the message again, and the inbox finds its note.
//
// If the message comes from an Outmill subscriber on the same store, the statement that writes the
// note also looks at the lease of its record. So a process that was stopped, and goes on after
// another one has taken the record over, does nothing (outmill.ErrLeaseLost). If nobody knows
// whether the transaction was committed (storekit.ErrCommitInDoubt), Outmill's subscriber counts no
// attempt: the message comes again, and its note tells.
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
// A note of a message from the same store is kept for its retention, 7 days by default, and at
// least as long as its record exists and is not processed: a record that is dead, paused or unread
// is recognised after any time. With Config.Shared that is the record of the delivery that wrote
// the note. For messages from elsewhere the retention alone counts. It must be longer than any
// redelivery can take.
//
// The inbox is an idempotent receiver (Hohpe and Woolf, Enterprise Integration Patterns) that
// keeps its notes in the database of the handler's work, as NServiceBus's outbox does.
package inbox
