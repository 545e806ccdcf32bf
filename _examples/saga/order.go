package main

import (
	"encoding/json"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/inbox"
	"github.com/outmill/outmill/sagas"
	"github.com/outmill/outmill/sqlite"
)

// Messages. All have the order, by which they find its saga.
type (
	placed   struct{ Order, Customer, Item string }
	pay      struct{ Order, Customer string }
	paid     struct{ Order string }
	declined struct{ Order string }
	ship     struct{ Order, Item string }
	shipped  struct{ Order string }
	soldOut  struct{ Order string }
	refund   struct{ Order string }
	overdue  struct{}
)

// Topics, one for each type of message.
const (
	topicPlaced   = "order.placed"
	topicOverdue  = "order.overdue"
	topicPay      = "payment.requested"
	topicPaid     = "payment.received"
	topicDeclined = "payment.declined"
	topicRefund   = "payment.refund"
	topicShip     = "shipping.requested"
	topicShipped  = "shipping.done"
	topicSoldOut  = "shipping.impossible"
)

// order is the state of a saga.
type order struct {
	Item string `json:"item"`
	Paid bool   `json:"paid"`
}

// orders defines the sagas. note writes how an order ends, in the transaction of its saga.
func orders(store *sqlite.Store, payWithin time.Duration, note noting, logger watermill.LoggerAdapter) (*sagas.Saga[order], error) {
	end := func(c *sagas.Context[order], how string) error {
		c.Complete()
		return note(c, c.Correlation, how)
	}
	return sagas.Define(sagas.Config{Store: store, Inbox: &inbox.Config{}, NotFound: refundLatePayment(store, logger), Logger: logger},
		sagas.StartedBy(topicPlaced, func(m placed) string { return m.Order }, func(c *sagas.Context[order], m placed) error {
			c.State.Item = m.Item
			if err := c.Timeout(topicOverdue, payWithin, overdue{}); err != nil {
				return err
			}
			return c.PublishValue(topicPay, pay{m.Order, m.Customer})
		}),
		sagas.On(topicPaid, func(m paid) string { return m.Order }, func(c *sagas.Context[order], m paid) error {
			c.State.Paid = true
			return c.PublishValue(topicShip, ship{m.Order, c.State.Item})
		}),
		sagas.On(topicDeclined, func(m declined) string { return m.Order }, func(c *sagas.Context[order], _ declined) error {
			return end(c, "cancelled")
		}),
		sagas.On(topicShipped, func(m shipped) string { return m.Order }, func(c *sagas.Context[order], _ shipped) error {
			return end(c, "shipped")
		}),
		// The compensation: what was done before is undone by another message.
		sagas.On(topicSoldOut, func(m soldOut) string { return m.Order }, func(c *sagas.Context[order], m soldOut) error {
			if err := c.PublishValue(topicRefund, refund(m)); err != nil {
				return err
			}
			return end(c, "cancelled")
		}),
		sagas.Timeout(topicOverdue, func(c *sagas.Context[order], _ overdue) error {
			if c.State.Paid {
				// It is being shipped.
				return nil
			}
			return end(c, "cancelled")
		}))
}

// refundLatePayment has a payment refunded whose order has ended.
func refundLatePayment(store *sqlite.Store, logger watermill.LoggerAdapter) func(msg *message.Message, id string) error {
	return func(msg *message.Message, id string) error {
		if message.SubscribeTopicFromCtx(msg.Context()) != topicPaid {
			logger.Info("A message for no order", watermill.LogFields{"order": id})
			return nil
		}
		payload, err := json.Marshal(refund{id})
		if err != nil {
			return err
		}
		// The context has the transaction, with the note that the payment was handled.
		return store.Append(msg.Context(), &outmill.Record{Topic: topicRefund, Key: id, Payload: payload})
	}
}
