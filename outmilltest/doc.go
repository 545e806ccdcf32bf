// Package outmilltest helps to test programs that publish through Outmill.
//
// [NewStore] makes a throw-away store with its schema. [RequirePublished],
// [RequireManyPublished] and [RequireNotPublished] look at what any store
// holds, and show what was published instead when a test fails:
//
//	func TestAnOrderIsAnnounced(t *testing.T) {
//		store := outmilltest.NewStore(t)
//		// … the program under test publishes in transactions of store.DB() …
//		outmilltest.RequirePublished(t, store, "orders",
//			outmilltest.Key("customer-7"),
//			outmilltest.PayloadJSON(`{"order": 42}`))
//	}
//
// What counts is what was committed: a message of a transaction that is still
// open, or was rolled back, is not published. A message that reaches several
// groups counts once. A store forgets a message when its last reader has acked
// it, unless it retains processed records, as NewStore's does.
package outmilltest
