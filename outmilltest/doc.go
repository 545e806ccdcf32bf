// Package outmilltest helps to test programs that publish through Outmill.
//
// [NewStore] makes a throw-away store with its schema. [RequirePublished],
// [RequireManyPublished] and [RequireNotPublished] check the messages in any store. If a
// test fails, they show the messages that were published instead:
//
//	func TestAnOrderIsAnnounced(t *testing.T) {
//		store := outmilltest.NewStore(t)
//		// … the program under test publishes in transactions of store.DB() …
//		outmilltest.RequirePublished(t, store, "orders",
//			outmilltest.Key("customer-7"),
//			outmilltest.PayloadJSON(`{"order": 42}`))
//	}
//
// Only committed messages count: a message of a transaction that is still open, or was
// rolled back, is not published. A message that reaches several groups counts once. A store
// deletes a message when its last group has acked it, unless it retains processed records,
// as NewStore's store does.
package outmilltest
