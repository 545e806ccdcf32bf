package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/subscriber"
	"github.com/outmill/outmill/tenants"
)

const topic = "order.created"

// shop is the service.
type shop struct {
	set    *tenants.Set
	pub    *publisher.Publisher
	sub    *subscriber.Subscriber
	router *message.Router
	audit  *audit

	running sync.WaitGroup
}

func openShop(ctx context.Context, catalogue *catalogue) (*shop, error) {
	s := &shop{audit: newAudit()}
	if err := s.build(ctx, catalogue); err != nil {
		return nil, errors.Join(err, s.close())
	}
	ended := make(chan error, 1)
	s.running.Go(func() { ended <- s.router.Run(context.WithoutCancel(ctx)) })
	select {
	case <-s.router.Running():
		return s, nil
	case err := <-ended:
		return nil, errors.Join(err, s.close())
	}
}

func (s *shop) build(ctx context.Context, catalogue *catalogue) (err error) {
	s.set, err = tenants.New(ctx, tenants.Config{
		Discovery: catalogue.discovery(),
		Ensure:    true,
		Strategy:  tenants.RoundRobin{},
	}, nil)
	if err != nil {
		return err
	}
	if s.pub, err = publisher.New(s.set, publisher.Config{RequireTx: true}, nil); err != nil {
		return err
	}
	if s.sub, err = subscriber.New(s.set, subscriber.Config{}, nil); err != nil {
		return err
	}
	if s.router, err = message.NewRouter(message.RouterConfig{}, nil); err != nil {
		return err
	}
	s.router.AddMiddleware(subscriber.KeepError)
	s.router.AddConsumerHandler("orders", topic, s.sub, s.handle)
	return nil
}

var errDeclined = errors.New("the card was declined")

// placeOrder writes an order and its message in one transaction of the tenant's database. Every
// seventh order is rolled back.
func (s *shop) placeOrder(ctx context.Context, tenant string, order int) error {
	outbox, err := s.set.Outbox(tenant)
	if err != nil {
		return err
	}
	store, ok := outmill.As[*sqlite.Store](outbox)
	if !ok {
		return fmt.Errorf("the outbox of %s is not on SQLite", tenant)
	}
	id := fmt.Sprintf("%s-%d", tenant, order)
	err = store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY)`); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO orders VALUES (?)`, id); err != nil {
			return err
		}
		msg := message.NewMessage(id, []byte(tenant))
		outmill.SetTenantID(msg, tenant)
		if err := s.pub.WithContext(ctx).Publish(topic, msg); err != nil {
			return err
		}
		if order%7 == 6 {
			return errDeclined
		}
		return nil
	})
	if errors.Is(err, errDeclined) {
		s.audit.rolledBack()
		return nil
	}
	if err == nil {
		s.audit.committed(id)
	}
	return err
}

// handle works on the orders of all tenants. The delivery says whose order it is.
func (s *shop) handle(msg *message.Message) error {
	delivery, _ := outmill.Delivery(msg.Context())
	s.audit.handled(msg.UUID, delivery.Store == string(msg.Payload))
	return nil
}

func (s *shop) close() error {
	var errs []error
	if s.router != nil {
		errs = append(errs, s.router.Close())
		s.running.Wait()
	}
	if s.set != nil {
		errs = append(errs, s.set.Close())
	}
	return errors.Join(errs...)
}
