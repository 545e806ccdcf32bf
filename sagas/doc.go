// Package sagas has long-running state as handlers of Watermill routers: a saga is
// started by a message, finds its state by a value that all its messages share, and
// completes.
//
//	orders, err := sagas.Define(sagas.Config{Store: store, Inbox: &inbox.Config{}},
//		sagas.StartedBy("order.placed", func(m Placed) string { return m.Order },
//			func(c *sagas.Context[Order], m Placed) error {
//				c.State.Customer = m.Customer
//				return c.Timeout("payment.timeout", time.Hour, Unpaid{})
//			}),
//		sagas.On("payment.received", func(m Payment) string { return m.Order },
//			func(c *sagas.Context[Order], m Payment) error {
//				c.Complete()
//				return c.PublishValue("shipping.requested", Ship{Customer: c.State.Customer})
//			}),
//		sagas.Timeout("payment.timeout", func(c *sagas.Context[Order], m Unpaid) error {
//			c.Complete()
//			return nil
//		}))
//	err = orders.AddHandlers(router, sub)
//
// The state, the messages that the handler publishes and what it does by the transaction
// of its context commit together, or not at all. With Config.Inbox so do a note of the
// message, by which a duplicate is not handled again, and its ack. Without one the message
// is acked afterwards, and is handled again after a crash.
//
// The transaction runs again where it fails for a reason that passes, such as a deadlock. So
// a handler must have no effects outside of it.
//
// # Concurrency
//
// Two handlers may be at the same saga. The one that commits second fails, nothing that it
// did is kept, and its message comes again soon, without using up an attempt: see
// ErrConflict and ErrStarted. Give the messages of a busy saga its correlation value as their key
// (outmill.SetKey), and read them with subscriber.Config.Order outmill.OrderKey: then the
// messages of a topic come one after the other. Messages of different topics may still
// conflict.
package sagas
