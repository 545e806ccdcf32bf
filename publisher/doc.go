// Package publisher is a Watermill Publisher over an Outmill store.
//
// Messages become part of the transaction that their context carries. They are delivered if
// and only if that transaction commits:
//
//	pub, err := publisher.New(store, publisher.Config{RequireTx: true}, logger)
//	…
//	tx, err := db.BeginTx(ctx, nil)
//	// … the business data, on tx …
//	msg := message.NewMessage(watermill.NewUUID(), payload)
//	err = pub.WithContext(store.WithTx(ctx, tx)).Publish("orders", msg)
//	err = tx.Commit()
//
// Watermill uses each message's own context; msg.SetContext(store.WithTx(ctx, tx)) does the
// same, and so does the context that a cqrs EventBus or CommandBus gets. One long-lived
// Publisher serves all transactions. Without a transaction in the context, a call runs one
// of its own: all its messages are written, or none.
package publisher
