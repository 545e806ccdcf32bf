package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/inbox"
)

// Customers and items with which an order fails.
const (
	broke     = "customer 3" // whose card is declined
	forgetful = "customer 5" // who never pays
	late      = "customer 7" // who pays when the order was cancelled
	rare      = "item 9"     // which is not in stock
)

// service handles messages of type M, each once: one transaction commits the handler's
// writes, the messages that it publishes, the note of the message, and its ack.
func service[M any](s *shop, name, topic string, handle func(ctx context.Context, m M) error) error {
	box, err := inbox.New(s.store, inbox.Config{Consumer: name})
	if err != nil {
		return err
	}
	s.router.AddConsumerHandler(name, topic, s.sub, func(msg *message.Message) error {
		var m M
		if err := json.Unmarshal(msg.Payload, &m); err != nil {
			return outmill.Permanent(err)
		}
		return handle(msg.Context(), m)
	}).AddMiddleware(box.Middleware)
	return nil
}

// services has the handlers of other teams, which know nothing of sagas.
func (s *shop) services(payWithin time.Duration) error {
	if err := service(s, "payment", topicPay, func(ctx context.Context, m pay) error {
		switch m.Customer {
		case forgetful:
			return nil
		case broke:
			return s.publish(ctx, topicDeclined, m.Order, 0, declined{m.Order})
		}
		if err := s.book(ctx, m.Order, +1); err != nil {
			return err
		}
		wait := time.Duration(0)
		if m.Customer == late {
			wait = payWithin + payWithin/2
		}
		return s.publish(ctx, topicPaid, m.Order, wait, paid{m.Order})
	}); err != nil {
		return err
	}
	if err := service(s, "refund", topicRefund, func(ctx context.Context, m refund) error { return s.book(ctx, m.Order, -1) }); err != nil {
		return err
	}
	return service(s, "shipping", topicShip, func(ctx context.Context, m ship) error {
		if m.Item == rare {
			return s.publish(ctx, topicSoldOut, m.Order, 0, soldOut{m.Order})
		}
		return s.publish(ctx, topicShipped, m.Order, 0, shipped{m.Order})
	})
}

// publish publishes a message twice, as a producer that got no answer would.
func (s *shop) publish(ctx context.Context, topic, key string, wait time.Duration, value any) error {
	payload, err := json.Marshal(value)
	if err != nil {
		return err
	}
	uuid := watermill.NewUUID()
	for range 2 {
		msg := message.NewMessage(uuid, payload)
		outmill.SetKey(msg, key)
		outmill.SetDelay(msg, wait)
		if err := s.pub.WithContext(ctx).Publish(topic, msg); err != nil {
			return err
		}
	}
	return nil
}
