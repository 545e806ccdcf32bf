package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/components/cqrs"
	"github.com/jackc/pgx/v5"

	"github.com/outmill/outmill"
	"github.com/outmill/outmill/postgres"
)

// PlaceOrder is a command.
type PlaceOrder struct {
	Item string `json:"item"`
}

// OrderPlaced is an event.
type OrderPlaced struct {
	Item string `json:"item"`
}

var (
	errForkliftStuck = errors.New("forklift stuck")
	errNoSuchThing   = errors.New("no such thing")
)

// shop handles commands.
type shop struct {
	store    *postgres.Store
	events   *cqrs.EventBus
	failures atomic.Int32
	stuck    atomic.Bool
}

// placeOrder is a command handler. The context that InTx passes on carries the
// transaction, so the event bus publishes in it.
func (s *shop) placeOrder(ctx context.Context, command *PlaceOrder) error {
	return s.store.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO orders (item) VALUES ($1)`, command.Item); err != nil {
			return err
		}
		if err := s.events.Publish(ctx, &OrderPlaced{Item: command.Item}); err != nil {
			return err
		}
		// The error comes last to show that the row and the message are rolled back, too.
		return s.reserve(command.Item)
	})
}

func (s *shop) reserve(item string) error {
	switch {
	case item == "unicorn":
		s.failures.Add(1)
		return outmill.Permanent(errNoSuchThing)
	case item == "lamp" && s.stuck.CompareAndSwap(false, true):
		s.failures.Add(1)
		return errForkliftStuck
	}
	return nil
}

// journal has the work of an event handler.
type journal struct {
	mu    sync.Mutex
	items []string
}

func (j *journal) handle(_ context.Context, event *OrderPlaced) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.items = append(j.items, event.Item)
	return nil
}

func (j *journal) list() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.items)
}
