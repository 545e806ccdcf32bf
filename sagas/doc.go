// Package sagas has handlers for Watermill routers that keep the state of long-running
// processes. A message starts a saga; further messages find its state by the correlation
// value, which they all have; and a handler completes the saga.
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
// One transaction commits the state, the messages that the handler publishes, and the
// handler's own writes with the transaction of its context; or none of them. With
// Config.Inbox it also commits the ack, and a note by which a duplicate is not handled again.
// Without an inbox the message is acked after the commit, and after a crash between the two
// it is handled again.
//
// A handler may also write with gorm, bun, sqlx, sqlc or ent: add inbox.Within to the router.
//
// If the transaction fails for a temporary reason, such as a deadlock, the store repeats it
// and the handler runs again. So a handler must have no effects outside of the transaction.
//
// # Concurrency
//
// Two handlers may work on the same saga. The transaction of the second one to store the
// state is rolled back, and its message comes again soon, without using up an attempt: see
// ErrConflict and ErrStarted. To avoid conflicts of a busy saga, give its messages the
// correlation value as their key (outmill.SetKey), and read them with
// subscriber.Config.Order outmill.OrderKey: then the messages of a topic are handled one
// after the other. Messages of different topics may still conflict.
package sagas
