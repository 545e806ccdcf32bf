package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/publisher"
	"github.com/outmill/outmill/sqlite"
	"github.com/outmill/outmill/subscriber"
)

const (
	createTables = `CREATE TABLE orders (id TEXT PRIMARY KEY);
CREATE TABLE ends (id TEXT NOT NULL, how TEXT NOT NULL);
CREATE TABLE ledger (id TEXT NOT NULL, paid INTEGER NOT NULL)`
	insertOrder = `INSERT INTO orders (id) VALUES (?)`
	insertEnd   = `INSERT INTO ends (id, how) VALUES (?, ?)`
	insertEntry = `INSERT INTO ledger (id, paid) VALUES (?, ?)`
	// countAll counts the orders by their end. An order is wrong if it has two ends, was paid
	// but not shipped, or was shipped but not paid.
	countAll = `SELECT count(*), coalesce(sum(ends = 1 AND how = 'shipped'), 0), coalesce(sum(ends = 1 AND how = 'cancelled'), 0),
	coalesce(sum(refunds), 0), coalesce(sum(ends = 0), 0), coalesce(sum(ends > 1 OR balance <> (how = 'shipped')), 0)
FROM (SELECT (SELECT count(*) FROM ends e WHERE e.id = o.id) AS ends, (SELECT coalesce(max(how), '') FROM ends e WHERE e.id = o.id) AS how,
	(SELECT coalesce(sum(paid), 0) FROM ledger l WHERE l.id = o.id) AS balance,
	(SELECT count(*) FROM ledger l WHERE l.id = o.id AND paid < 0) AS refunds
	FROM orders o)`
	// lookEvery is the interval at which the program checks whether messages are left.
	lookEvery = 20 * time.Millisecond
)

// summary is the last line of the program.
type summary struct{ orders, shipped, cancelled, refunded, lost, wrong int }

func (s summary) ok() bool { return s.lost == 0 && s.wrong == 0 }

func (s summary) String() string {
	return fmt.Sprintf("orders=%d shipped=%d cancelled=%d refunded=%d lost=%d wrong=%d",
		s.orders, s.shipped, s.cancelled, s.refunded, s.lost, s.wrong)
}

func count(ctx context.Context, db *sql.DB) (s summary, err error) {
	err = db.QueryRowContext(ctx, countAll).Scan(&s.orders, &s.shipped, &s.cancelled, &s.refunded, &s.lost, &s.wrong)
	return s, err
}

// shop is the application: orders, and the services that they need.
type shop struct {
	store  *sqlite.Store
	pub    *publisher.Publisher
	sub    *subscriber.Subscriber
	router *message.Router
	ended  chan error
}

// noting writes how an order has ended, in the transaction of the context.
type noting func(ctx context.Context, id, how string) error

func startShop(ctx context.Context, store *sqlite.Store, opts options) (*shop, error) {
	logger := watermill.NopLogger{}
	s := &shop{store: store, ended: make(chan error, 1)}
	var err error
	if s.pub, err = publisher.New(store, publisher.Config{RequireTx: true}, logger); err != nil {
		return nil, err
	}
	if s.sub, err = subscriber.New(store, subscriber.Config{PollInterval: 100 * time.Millisecond}, logger); err != nil {
		return nil, err
	}
	if s.router, err = message.NewRouter(message.RouterConfig{}, logger); err != nil {
		return nil, err
	}
	s.router.AddMiddleware(subscriber.KeepError)
	sagas, err := orders(store, opts.payWithin, s.note, logger)
	if err == nil {
		err = errors.Join(sagas.AddHandlers(s.router, s.sub), s.services(opts.payWithin))
	}
	go func() { s.ended <- s.router.Run(context.WithoutCancel(ctx)) }()
	<-s.router.Running()
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *shop) close() error {
	return errors.Join(s.router.Close(), <-s.ended)
}

// place places orders. Each is in a transaction with its message.
func (s *shop) place(ctx context.Context, n int) error {
	for i := range n {
		id := fmt.Sprint("order ", i)
		m := placed{id, fmt.Sprint("customer ", i%10), fmt.Sprint("item ", i%10)}
		if err := s.store.InTx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, insertOrder, id); err != nil {
				return err
			}
			return s.publish(ctx, topicPlaced, id, 0, m)
		}); err != nil {
			return err
		}
	}
	return nil
}

// note is a noting.
func (s *shop) note(ctx context.Context, id, how string) error {
	return s.exec(ctx, insertEnd, id, how)
}

// book notes a payment, or with -1 a refund.
func (s *shop) book(ctx context.Context, id string, paid int) error {
	return s.exec(ctx, insertEntry, id, paid)
}

func (s *shop) exec(ctx context.Context, statement string, args ...any) error {
	tx, ok := s.store.Tx(ctx)
	if !ok {
		return errors.New("the context has no transaction")
	}
	_, err := tx.ExecContext(ctx, statement, args...)
	return err
}

// wait returns when no message is left to be handled.
func (s *shop) wait(ctx context.Context) error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return fmt.Errorf("interrupted: %w", ctx.Err())
		case <-ticker.C:
		}
		left, err := s.store.List(ctx, outmill.ListQuery{Limit: 1})
		if err != nil {
			return err
		}
		if len(left) == 0 {
			return nil
		}
		if left[0].Status == outmill.StatusDead {
			return fmt.Errorf("a message of %s is dead: %s", left[0].Topic, left[0].LastError)
		}
	}
}
